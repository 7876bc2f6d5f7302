"""Single steps: the lowered node computes what the node did, for random attributes, shapes and values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from dmlprep.core.errors import ModelRefused
from tests.passes.opset.models import bring, close, operators, parse, reference, run

FEW = settings(max_examples=15, deadline=None)


def one(
    op_type: str,
    opset: int,
    inputs: dict[str, np.ndarray],
    constants: dict[str, np.ndarray] | None = None,
    outputs: int = 1,
    **attributes: object,
) -> onnx.ModelProto:
    """A model of one node; names of inputs and constants in the order of the node's inputs."""
    constants = constants or {}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()
    ]
    names = sorted({*inputs, *constants})
    node = helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], name="node", **attributes)
    found = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)]
    graph = helper.make_graph([node], "g", infos, found, [numpy_helper.from_array(a, n) for n, a in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_operatorsetid("", opset)], ir_version=10)
    for value, got in zip(model.graph.output, reference(model, inputs), strict=True):
        value.CopyFrom(helper.make_tensor_value_info(value.name, helper.np_dtype_to_tensor_dtype(got.dtype), got.shape))
    return model


def same(
    model: onnx.ModelProto, feeds: dict[str, np.ndarray], to: int, *, in_reference: bool = False
) -> onnx.ModelProto:
    """The model at opset ``to`` computes what it did."""
    lowered, _ = bring(model, to)
    runner = reference if in_reference else run
    close(runner(lowered, feeds), reference(model, feeds))
    return lowered


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4)
REDUCTIONS = [
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
]


@FEW
@given(
    op=st.sampled_from(REDUCTIONS),
    shape=shapes,
    keep=st.integers(0, 1),
    at_run_time=st.booleans(),
    data=st.data(),
    to=st.sampled_from([11, 13, 17]),
)
def test_axes_of_reductions(
    op: str, shape: list[int], keep: int, at_run_time: bool, data: st.DataObject, to: int
) -> None:
    rank = len(shape)
    axes = np.array(
        data.draw(st.lists(st.integers(-rank, rank - 1), max_size=rank, unique_by=lambda a: a % rank)), np.int64
    )
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    inputs = {"a": x, **({"b": axes} if at_run_time else {})}
    model = one(op, 18, inputs, None if at_run_time else {"b": axes}, keepdims=keep)
    lowered = same(model, inputs, to)
    if not at_run_time:
        assert operators(lowered) == [op]


@FEW
@given(sizes=st.integers(1, 7), pieces=st.integers(1, 4), to=st.sampled_from([11, 13, 17]))
def test_split_into_a_number_of_pieces(sizes: int, pieces: int, to: int) -> None:
    if -(-sizes // pieces) * (pieces - 1) >= sizes:
        return  # the last piece would be empty or less
    x = np.arange(sizes * 3, dtype=np.float32).reshape(3, sizes)
    same(one("Split", 18, {"a": x}, outputs=pieces, axis=-1, num_outputs=pieces), {"a": x}, to)


@FEW
@given(axis=st.integers(0, 1), pads=st.tuples(st.integers(0, 3), st.integers(0, 3)), at_run_time=st.booleans())
def test_pad_of_some_axes(axis: int, pads: tuple[int, int], at_run_time: bool) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    amounts = np.array(pads, np.int64)
    constants = {"c": np.array(7, np.float32), "d": np.array([axis], np.int64)}
    if at_run_time:
        model = one("Pad", 18, {"a": x, "b": amounts}, constants)
        same(model, {"a": x, "b": amounts}, 13)
    else:
        lowered = same(one("Pad", 18, {"a": x}, {"b": amounts, **constants}), {"a": x}, 11)
        assert operators(lowered) == ["Pad"]


@FEW
@given(pads=st.lists(st.integers(0, 9), min_size=4, max_size=4), at_run_time=st.booleans())
def test_pad_by_wrapping(pads: list[int], at_run_time: bool) -> None:
    x, amounts = np.arange(12, dtype=np.float32).reshape(3, 4), np.array(pads, np.int64)
    feeds = {"a": x, **({"b": amounts} if at_run_time else {})}
    same(one("Pad", 19, feeds, None if at_run_time else {"b": amounts}, mode="wrap"), feeds, 17)


@FEW
@given(axis=st.integers(-3, 2), op=st.sampled_from(["Softmax", "LogSoftmax", "Hardmax"]))
def test_softmax_over_one_axis(axis: int, op: str) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    same(one(op, 13, {"a": x}, axis=axis), {"a": x}, 11)


@FEW
@given(
    block=st.sampled_from([0, 2, 3]),
    axis=st.integers(-2, 1),
    dtype=st.sampled_from([np.uint8, np.int8, np.uint16, np.int16]),
    to=st.sampled_from([13, 19, 20]),
)
def test_quantization_in_blocks_and_sixteen_bits(block: int, axis: int, dtype: type, to: int) -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((4, 6)) * 20).astype(np.float32)
    shape = list(x.shape)
    if block:
        shape[axis] = -(-shape[axis] // block)
        if shape[axis] * block != x.shape[axis]:
            return
    else:
        shape = [x.shape[axis]]
    scale = rng.uniform(0.05, 0.5, shape).astype(np.float32)
    zero = rng.integers(0, 9, shape).astype(dtype)
    model = one("QuantizeLinear", 21, {"a": x}, {"b": scale, "c": zero}, axis=axis, block_size=block)
    lowered, _ = bring(model, to)
    (quantized,) = reference(model, {"a": x})
    assert np.abs(run(lowered, {"a": x})[0].astype(int) - quantized.astype(int)).max() <= 1  # ties of x / scale
    back = one("DequantizeLinear", 21, {"a": quantized}, {"b": scale, "c": zero}, axis=axis, block_size=block)
    close(run(bring(back, to)[0], {"a": quantized}), reference(back, {"a": quantized}))


@FEW
@given(
    mode=st.sampled_from(["linear", "nearest", "cubic"]),
    padding=st.sampled_from(["zeros", "border", "reflection"]),
    align=st.integers(0, 1),
    seed=st.integers(0, 5),
)
def test_grid_sample_by_gathers(mode: str, padding: str, align: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    grid = rng.uniform(-1.4, 1.4, (2, 3, 2, 2)).astype(np.float32)
    feeds = {"a": x, "b": grid}
    model = one("GridSample", 20, feeds, mode=mode, padding_mode=padding, align_corners=align)
    renamed, _ = bring(model, 16)
    assert operators(renamed) == ["GridSample"]
    gathered, _ = bring(model, 15)
    assert "GridSample" not in operators(gathered)
    close(run(gathered, feeds), run(model, feeds))


@FEW
@given(reverse=st.integers(0, 1), exclusive=st.integers(0, 1), axis=st.integers(-2, 1), size=st.integers(1, 9))
def test_running_products(reverse: int, exclusive: int, axis: int, size: int) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, (2, size)).astype(np.float32)
    constants = {"b": np.array(axis, np.int64)}
    same(one("CumProd", 26, {"a": x}, constants, reverse=reverse, exclusive=exclusive), {"a": x}, 17)


@FEW
@given(
    direction=st.sampled_from(["LEFT", "RIGHT"]),
    dtype=st.sampled_from([np.int8, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]),
    seed=st.integers(0, 9),
)
def test_shifts(direction: str, dtype: type, seed: int) -> None:
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, 12, dtype=dtype, endpoint=True)
    y = rng.integers(0, info.bits + 3, 12).astype(dtype)
    lowered, _ = bring(one("BitShift", 28, {"a": x, "b": y}, direction=direction), 20)
    wide = [int(v) << int(s) if direction == "LEFT" else int(v) >> int(s) for v, s in zip(x, y, strict=True)]
    wanted = [(w - info.min) % (1 << info.bits) + info.min if info.min else w % (1 << info.bits) for w in wide]
    assert reference(lowered, {"a": x, "b": y})[0].tolist() == wanted


@FEW
@given(
    op=st.sampled_from(["BitwiseAnd", "BitwiseOr", "BitwiseXor"]),
    dtype=st.sampled_from([np.int8, np.int32, np.int64, np.uint64]),
)
def test_bitwise_operators(op: str, dtype: type) -> None:
    rng = np.random.default_rng(0)
    info = np.iinfo(dtype)
    ends = np.array([info.min, info.max], dtype)
    x, y = (rng.integers(info.min, info.max, 9, dtype=dtype, endpoint=True) for _ in range(2))
    feeds = {"a": np.concatenate([x, ends]), "b": np.concatenate([ends, y])}
    lowered, _ = bring(one(op, 18, feeds), 17)
    numpy_op = {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}[op]
    assert reference(lowered, feeds)[0].tolist() == numpy_op(feeds["a"], feeds["b"]).tolist()


@pytest.mark.parametrize("at_run_time", [False, True])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [[2, 3, 4, 5], [1, 3, 1, 6], [2, 3, 4, 5, 6]])
def test_affine_grid(size: list[int], align: int, at_run_time: bool) -> None:
    axes = len(size) - 2
    theta = np.random.default_rng(0).standard_normal((size[0], axes, axes + 1)).astype(np.float32)
    feeds, constants = {"a_theta": theta}, {}
    (feeds if at_run_time else constants)["b_size"] = np.array(size)
    with np.errstate(divide="ignore"):  # of the reference, where a lone element is the first and the last one
        model = one("AffineGrid", 20, feeds, constants, align_corners=align)
    lowered, _ = bring(model, 17)
    assert "If" not in operators(lowered)
    close(run(lowered, feeds), run(model, feeds))


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_scatter_with_a_reduction(reduction: str) -> None:
    rng = np.random.default_rng(0)
    feeds = {
        "a": rng.standard_normal((5, 3)).astype(np.float32),
        "b": np.array([[0, 1, -1], [0, 1, 2], [4, 1, 2]]),
        "c": rng.standard_normal((3, 3)).astype(np.float32),
    }
    same(one("ScatterElements", 18, feeds, axis=0, reduction=reduction), feeds, 13)
    feeds["b"] = np.array([[0], [4], [0]])
    same(one("ScatterND", 18, feeds, reduction=reduction), feeds, 13)


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "linear", "antialias": 1},
        {"mode": "cubic", "antialias": 1},
        {"mode": "linear", "keep_aspect_ratio_policy": "not_larger"},
        {"mode": "nearest", "keep_aspect_ratio_policy": "not_smaller"},
        {"mode": "cubic", "coordinate_transformation_mode": "half_pixel_symmetric"},
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ],
)
def test_resize_with_fixed_sizes(attributes: dict[str, object]) -> None:
    resized_alike(attributes, (5, 7))


@pytest.mark.parametrize("rounding", ["ceil", "floor", "round_prefer_ceil", "round_prefer_floor"])
def test_resize_to_more_elements(rounding: str) -> None:
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel_symmetric", "nearest_mode": rounding}
    resized_alike(attributes, (19, 23))


def resized_alike(attributes: dict[str, object], sizes: tuple[int, int]) -> None:
    """Lower a Resize to these sizes, and compare it with onnx's reference."""
    x = np.random.default_rng(0).standard_normal((1, 2, 8, 10)).astype(np.float32)
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], axes=[2, 3], **attributes)
    kept = attributes.get("keep_aspect_ratio_policy")
    out = [1, 2, *{"not_larger": (5, 6), "not_smaller": (6, 7)}.get(str(kept), sizes)]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
        [numpy_helper.from_array(np.array(sizes), "s")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_operatorsetid("", 19)], ir_version=9)
    lowered, _ = bring(model, 13)
    close(run(lowered, {"x": x}), reference(model, {"x": x}))


def test_a_pool_whose_last_window_starts_in_the_padding() -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 2, 2)).astype(np.float32)
    model = one("MaxPool", 22, {"a": x}, kernel_shape=[1, 1], strides=[2, 2], pads=[0, 0, 1, 1], ceil_mode=1)
    lowered, _ = bring(model, 17)
    assert operators(lowered) == ["MaxPool", "Slice"]
    free = parse(
        '<ir_version: 10, opset_import: ["" : 22]> g (float[1, 1, h, 2] x) => (float[1, 1, k, l] y) '
        "{ y = MaxPool <kernel_shape = [1, 1], strides = [2, 2], pads = [0, 0, 1, 1], ceil_mode = 1> (x) }"
    )
    with pytest.raises(ModelRefused, match="ceil_mode"):
        bring(free, 17)


def test_a_reshape_to_literal_zeros() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[a, b] x, int64[3] s) => (float[c, d, e] y) { y = Reshape <allowzero = 1> (x, s) }"""
    model = parse(text)
    lowered, _ = bring(model, 13)
    for x, s in (((2, 6), [3, 2, 2]), ((2, 6), [4, -1, 1]), ((0, 6), [3, 0, 7])):
        feeds = {"x": np.arange(np.prod(x), dtype=np.float32).reshape(x), "s": np.array(s)}
        close(run(lowered, feeds), reference(model, feeds))


def test_a_reshape_to_sizes_and_a_rest() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[b, s, 6] x) => (float[b, s, h, 2] y) <int64[1] rest = {-1}, int64[1] d = {2}> {
      lead = Shape <end = 2> (x)
      shape = Concat <axis = 0> (lead, rest, d)
      y = Reshape <allowzero = 1> (x, shape)
    }"""
    model = parse(text)
    lowered, _ = bring(model, 13)
    assert [n.op_type for n in lowered.graph.node] == ["Shape", "Slice", "Concat", "Reshape"]
    feeds = {"x": np.arange(24, dtype=np.float32).reshape(2, 2, 6)}
    close(run(lowered, feeds), reference(model, feeds))


def test_a_cache_update() -> None:
    rng = np.random.default_rng(0)
    feeds = {
        "a": rng.standard_normal((2, 3, 6, 4)).astype(np.float32),
        "b": rng.standard_normal((2, 3, 2, 4)).astype(np.float32),
        "c": np.array([1, 5]),
    }
    same(one("TensorScatter", 24, feeds, mode="circular"), feeds, 17)


@pytest.mark.parametrize(("inverse", "onesided"), [(0, 0), (0, 1), (1, 0)])
def test_fourier_transforms_as_products(inverse: int, onesided: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 6, 1 if onesided else 2)).astype(np.float32)
    model = one("DFT", 17, {"a": x}, axis=1, inverse=inverse, onesided=onesided)
    lowered = same(model, {"a": x}, 13)
    assert "DFT" not in operators(lowered)
