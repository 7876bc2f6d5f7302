"""Rewrites that compute sizes, over random sizes: the outputs on the CPU stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.passes.fix_quirks.test_fix_quirks import fixed, on_cpu

SMALL = st.integers(1, 7)
FEW = settings(max_examples=25, deadline=None)


def model(node: onnx.NodeProto, x: np.ndarray[Any, Any], constants: dict[str, np.ndarray[Any, Any]], opset: int) -> Any:
    """x -> node -> y, the shape of y left open."""
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x.shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def same(proto: onnx.ModelProto, x: np.ndarray[Any, Any], tolerance: float = 0.0) -> None:
    """Run both on the CPU; a form that the CPU itself refuses proves nothing."""
    try:
        expected = on_cpu(proto, {"x": x})[0]
    except Exception:
        assume(False)
        return
    after, _, _ = fixed(proto)
    found = on_cpu(ir.to_proto(after.ir), {"x": x})[0]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def data(*dims: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).standard_normal(dims).astype(np.float32)


@given(size=st.tuples(SMALL, SMALL), kernel=st.integers(1, 4), stride=st.integers(1, 4), draw=st.data())
@FEW
def test_pooling(size: tuple[int, int], kernel: int, stride: int, draw: st.DataObject) -> None:
    pads = draw.draw(st.lists(st.integers(0, kernel - 1), min_size=4, max_size=4))
    op = draw.draw(st.sampled_from(["MaxPool", "AveragePool"]))
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, ceil_mode=1)
    same(model(node, data(1, 2, *size), {}, 17), data(1, 2, *size), 1e-6)


@given(size=st.tuples(SMALL, SMALL), kernel=st.integers(1, 4), stride=st.integers(1, 4), draw=st.data())
@FEW
def test_average_that_counts_padding(size: tuple[int, int], kernel: int, stride: int, draw: st.DataObject) -> None:
    pads = [draw.draw(st.integers(0, kernel - 1))] * 4
    node = helper.make_node(
        "AveragePool",
        ["x"],
        ["y"],
        kernel_shape=[kernel] * 2,
        strides=[stride] * 2,
        pads=pads,
        ceil_mode=1,
        count_include_pad=1,
    )
    same(model(node, data(1, 2, *size), {}, 19), data(1, 2, *size), 1e-6)


@given(
    size=st.tuples(SMALL, SMALL),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilation=st.integers(1, 2),
    side=st.sampled_from(["SAME_UPPER", "SAME_LOWER"]),
)
@FEW
def test_transposed_convolution(
    size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], dilation: int, side: str
) -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=stride, dilations=[dilation] * 2, auto_pad=side)
    same(model(node, data(1, 2, *size), {"w": data(2, 3, *kernel)}, 17), data(1, 2, *size), 1e-4)


@given(
    size=SMALL,
    kernel=st.integers(2, 5),
    stride=st.integers(2, 4),
    pads=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    extra=st.integers(0, 3),
    bias=st.booleans(),
)
@FEW
def test_transposed_convolution_in_one_dimension(
    size: int, kernel: int, stride: int, pads: tuple[int, int], extra: int, bias: bool
) -> None:
    assume(extra < stride)
    constants = {"w": data(2, 3, kernel), **({"b": data(3)} if bias else {})}
    node = helper.make_node(
        "ConvTranspose", ["x", *constants], ["y"], strides=[stride], pads=pads, output_padding=[extra]
    )
    same(model(node, data(1, 2, size), constants, 17), data(1, 2, size), 1e-4)


@given(
    size=st.tuples(SMALL, SMALL),
    pads=st.lists(st.integers(-3, 3), min_size=4, max_size=4),
    mode=st.sampled_from(["constant", "edge", "reflect"]),
)
@FEW
def test_pad(size: tuple[int, int], pads: list[int], mode: str) -> None:
    assume(mode == "constant" or all(max(pads[i], pads[i + 2]) < d for i, d in enumerate(size)))
    assume(all(d + min(pads[i], 0) + min(pads[i + 2], 0) > 0 for i, d in enumerate(size)))
    node = helper.make_node("Pad", ["x", "p"], ["y"], mode=mode)
    same(model(node, data(*size), {"p": np.array(pads, np.int64)}, 17), data(*size))


@given(
    lead=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    ones=st.lists(st.booleans(), min_size=3, max_size=3),
    rank=st.integers(1, 5),
)
@FEW
def test_products_of_rank_5(lead: tuple[int, int, int], ones: list[bool], rank: int) -> None:
    left = [1 if one else d for one, d in zip(ones, lead, strict=True)]
    right = [*lead, 4, 2][5 - rank :] if rank > 1 else [4]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    same(model(node, data(*left, 3, 4), {"w": data(*right)}, 17), data(*left, 3, 4), 1e-5)


@given(
    sizes=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    size=st.tuples(SMALL, SMALL),
    policy=st.sampled_from(["not_larger", "not_smaller"]),
    mode=st.sampled_from(["linear", "nearest"]),
)
@FEW
def test_resize_that_keeps_the_aspect_ratio(
    sizes: tuple[int, int], size: tuple[int, int], policy: str, mode: str
) -> None:
    node = helper.make_node(
        "Resize", ["x", "", "", "s"], ["y"], mode=mode, keep_aspect_ratio_policy=policy, axes=[2, 3]
    )
    same(model(node, data(1, 1, *size), {"s": np.array(sizes, np.int64)}, 18), data(1, 1, *size), 1e-5)
