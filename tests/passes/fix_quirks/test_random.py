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


@given(size=st.tuples(SMALL, SMALL), kernel=st.integers(1, 9), stride=st.integers(1, 9), draw=st.data())
@FEW
def test_pooling(size: tuple[int, int], kernel: int, stride: int, draw: st.DataObject) -> None:
    pads = draw.draw(st.lists(st.integers(0, kernel - 1), min_size=4, max_size=4))
    op = draw.draw(st.sampled_from(["MaxPool", "AveragePool"]))
    more = {"dilations": draw.draw(st.lists(st.integers(1, 3), min_size=2, max_size=2)), "pads": pads, "ceil_mode": 1}
    node = helper.make_node(op, ["x"], ["y"], kernel_shape=[kernel] * 2, strides=[stride] * 2, **more)
    same(model(node, data(1, 2, *size), {}, 19), data(1, 2, *size), 1e-6)


@given(size=st.tuples(SMALL, SMALL), kernel=st.integers(1, 9), stride=st.integers(1, 9), draw=st.data())
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
    # What the other modes pad with must be left after cropping; where it is not, ONNX Runtime reads beyond its tensor.
    left = [d + min(pads[i], 0) + min(pads[i + 2], 0) for i, d in enumerate(size)]
    assume(min(left) > 0)
    assume(mode == "constant" or all(max(pads[i], pads[i + 2]) < d for i, d in enumerate(left)))
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


@given(
    sizes=st.lists(st.integers(1, 3), min_size=9, max_size=9),
    perm=st.permutations(list(range(9))),
    wide=st.lists(st.booleans(), min_size=9, max_size=9),
)
@FEW
def test_rank_9(sizes: list[int], perm: list[int], wide: list[bool]) -> None:
    total = int(np.prod(sizes))
    other = [d if w else 1 for d, w in zip(sizes, wide, strict=True)]
    graph = helper.make_graph(
        [
            helper.make_node("Reshape", ["x", "s"], ["a"]),
            helper.make_node("Reshape", ["w", "o"], ["b"]),
            helper.make_node("Sub", ["a", "b"], ["c"]),
            helper.make_node("Transpose", ["c"], ["d"], perm=perm),
            helper.make_node("Reshape", ["d", "t"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [total])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [total])],
        [
            numpy_helper.from_array(np.array(sizes, np.int64), "s"),
            numpy_helper.from_array(np.array(other, np.int64), "o"),
            numpy_helper.from_array(np.array([total], np.int64), "t"),
            numpy_helper.from_array(data(int(np.prod(other))), "w"),
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    after, context, changed = fixed(proto)
    if not changed:  # nine dimensions that all move apart, or are broadcast apart
        assert context.findings[0].code == "DP641"
        return
    assert all(len(v.shape or ()) <= 8 for node in after.ir.graph for v in node.outputs)
    given_x = {"x": data(total)}
    np.testing.assert_array_equal(on_cpu(ir.to_proto(after.ir), given_x)[0], on_cpu(proto, given_x)[0])


@given(
    left=st.permutations(list("abcde")),
    kept=st.integers(1, 5),
    right=st.permutations(list("abcde")),
    read=st.integers(1, 5),
    out=st.permutations(list("abcde")),
)
@FEW
def test_einsum(left: list[str], kept: int, right: list[str], read: int, out: list[str]) -> None:
    first, second, result = "".join(left[:kept]), "".join(right[:read]), "".join(out[:4])
    assume(set(first) | set(second) == set("abcde"))
    size = dict(zip("abcde", (2, 3, 2, 4, 3), strict=True))
    node = helper.make_node("Einsum", ["x", "w"], ["y"], equation=f"{first},{second}->{result}")
    x, w = (data(*(size[label] for label in term)) for term in (first, second))
    same(model(node, x, {"w": w}, 17), x, 1e-5)


@given(
    size=st.tuples(SMALL, SMALL),
    sizes=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    form=st.sampled_from(["crop", "axes", "antialias", "one", "floor", "round_prefer_ceil"]),
    corners=st.lists(st.integers(0, 12).map(lambda tenth: tenth / 10), min_size=4, max_size=4),
)
@FEW
def test_resize(size: tuple[int, int], sizes: tuple[int, int], form: str, corners: list[float]) -> None:
    x = data(1, 2, *size)
    roi, shape = np.array([0, 0, *corners[:2], 1, 1, *corners[2:]], np.float32), [1, 2, *sizes]
    more: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    if form == "axes":
        roi, shape, more["axes"] = roi[[2, 3, 6, 7]], [*sizes], [2, 3]
    elif form == "antialias":
        more = {"mode": "linear", "antialias": 1}
    elif form == "one":
        more, shape = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}, [1, 2, sizes[0], 1]
    elif form != "crop":
        more = {"mode": "nearest", "coordinate_transformation_mode": "align_corners", "nearest_mode": form}
    node = helper.make_node("Resize", ["x", "r", "", "s"], ["y"], **more)
    same(model(node, x, {"r": roi, "s": np.array(shape, np.int64)}, 19), x, 1e-5)
