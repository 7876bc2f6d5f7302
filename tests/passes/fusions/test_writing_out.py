"""Fused operators written out in a copy: the same numbers as their formulas, and the model stays as it is."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from dmlprep.graph.model import Model
from dmlprep.passes.fusions import unsigned_weights, write_out
from dmlprep.pipeline.runner import CpuRunner
from tests.benchmarks.fused_kernels import CLOSE, KINDS, together


@pytest.mark.parametrize(
    "kind", [pytest.param(one, marks=[pytest.mark.slow] * (one == "rotary")) for one in sorted(KINDS)]
)
def test_every_form_is_written_out(kind: str) -> None:
    """The forms that are tried on DirectML: layouts, types, ranks, positions, a part of each head, biases."""
    cases = [case for case in KINDS[kind]() if "+-300" not in case.name and "500+-" not in case.name]
    model = Model(ir.from_proto(together(cases)))
    before = model.snapshot()
    written = write_out(model, all_of_them=True)
    assert sum(written.counts.values()) == len(cases)
    assert model.snapshot().same_as(before)
    assert not [node for node in written.model.ir.graph if node.domain]
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    proto = ir.to_proto(written.model.ir)
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {f"{name}_{i}": array for i, case in enumerate(cases) for name, array in case.feeds.items()}
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    for index, case in enumerate(cases):
        for name, expected in case.expected.items():
            got = np.asarray(found[f"{name}_{index}"]).astype(np.float64)
            assert got.shape == expected.shape, case.name
            assert np.max(np.abs(got - expected)) <= CLOSE[case.dtype] * np.max(np.abs(expected)), case.name


def test_what_the_cpu_has_a_kernel_for_stays() -> None:
    model = Model(ir.from_proto(together(list(KINDS["rotary"]())[:2])))
    written = write_out(model)
    assert written.model is model
    assert written.counts == {}
    assert str(written) == ""


@pytest.mark.parametrize(("level", "count"), [(None, 0), (1, 0), (4, 1)])
def test_a_product_that_the_cpu_rounds_is_written_without_its_level(level: int | None, count: int) -> None:
    """The CPU rounds data to 8 bits at level 4; without a level it gives the dequantised product, as DirectML does."""
    rng = np.random.default_rng(1)
    x, packed = rng.standard_normal((3, 64)).astype(np.float32), rng.integers(0, 256, (16, 2, 16), dtype=np.uint8)
    scales = rng.uniform(0.05, 0.1, (16, 2)).astype(np.float32)
    more = {} if level is None else {"accuracy_level": level}
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=64, N=16, bits=4, block_size=32, **more
    )
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [value("x", 1, [3, 64])], [value("y", 1, [3, 16])],
        [numpy_helper.from_array(packed, "w"), numpy_helper.from_array(scales.reshape(-1), "s")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = Model(ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=8)))
    written = write_out(model)
    assert sum(written.counts.values()) == count
    assert ("without the accuracy_level" in str(written)) is bool(count)
    numbers = np.stack([packed & 15, packed >> 4], -1).reshape(16, 2, 32).astype(np.float64) - 8
    expected = x @ (numbers * scales[..., None]).reshape(16, 64).T
    proto = ir.to_proto(written.model.ir)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5, atol=1e-5)
    with CpuRunner() as runner:  # a search for FP16 islands runs models as the proof does
        np.testing.assert_allclose(runner.run(model, {"x": x})["y"], expected, rtol=1e-5, atol=1e-5)


def test_packed_batches_stay() -> None:
    model = Model(ir.from_proto(together(list(KINDS["rotary"]())[:1])))
    next(iter(model.ir.graph)).attributes["is_packed_batching"] = ir.AttrInt64("is_packed_batching", 1)
    assert write_out(model, all_of_them=True).counts == {}


_FEED = np.random.default_rng(3).integers(0, 256, (2, 6, 8), dtype=np.uint8)


def _product(op: str, weights: np.ndarray, points: np.ndarray | None, data: str = "uint8") -> Model:
    """A model of one node of ``op`` on data [2, 6, 8], with constant weights [8, 12] and their zero points."""
    rng, number = np.random.default_rng(4), numpy_helper.from_array
    constants = {
        "w": weights, "one": np.float32(1), "s": np.float32(0.01), "a0": np.array(3, data), "y0": np.array(100, data),
        "b": rng.integers(-9999, 9999, 12, dtype=np.int32), "bias": rng.standard_normal(12).astype(np.float32),
    }  # fmt: skip
    w0 = "" if points is None else "w0"
    if points is not None:
        constants["w0"] = points
    if op == "QLinearConv":
        constants["w"] = np.resize(weights, (12, 3, 2))
    if op == "QGemm":
        constants["shape"] = np.array([-1, 8])
    inputs = {
        "DynamicQuantizeMatMul": ["f", "w", "s", w0, "bias"],
        "MatMulInteger": ["x", "w", "a0", w0],
        "MatMulIntegerToFloat": ["x", "w", "one", "s", "a0", w0],
        "QAttention": ["x", "w", "bias", "s", "s", "", "a0", w0],
        "QGemm": ["flat", "one", "a0", "w", "s", w0, "b", "s", "y0"],
        "QLinearConv": ["x", "one", "a0", "w", "s", w0, "s", "y0", "b"],
        "QLinearMatMul": ["x", "one", "a0", "w", "s", w0, "s", "y0"],
    }[op]
    more = {"QAttention": {"num_heads": 2}, "QLinearConv": {"group": 2, "pads": [1, 1]}}.get(op, {})
    plain = op in ("MatMulInteger", "QLinearConv", "QLinearMatMul")
    nodes = [helper.make_node(op, inputs, ["y"], domain="" if plain else "com.microsoft", **more)]
    if op == "DynamicQuantizeMatMul":
        nodes.insert(0, helper.make_node("Cast", ["x"], ["f"], to=1))
    if op == "QGemm":
        nodes.insert(0, helper.make_node("Reshape", ["x", "shape"], ["flat"]))
    kind = {"MatMulInteger": np.int32}.get(op, np.float32 if op[:2] in ("Dy", "Ma") or op == "QAttention" else data)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", helper.np_dtype_to_tensor_dtype(np.dtype(data)), [2, 6, 8])],
        [value("y", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)],
        [number(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return Model(ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=8)))


def _run(model: Model, feed: np.ndarray = _FEED) -> np.ndarray:
    proto = ir.to_proto(model.ir)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": feed})[0])


@pytest.mark.parametrize("op", sorted(unsigned_weights.OPERATORS))
def test_unsigned_weights_give_equal_numbers(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that cannot overflow: the operator gives the same with int8 weights as with uint8 ones."""
    weights = np.random.default_rng(5).integers(-60, 60, (8, 12), dtype=np.int8)
    model = _product(op, weights, np.array(2, np.int8))
    assert write_out(model).counts == {}
    monkeypatch.setattr(unsigned_weights, "_LARGEST", 0)
    written = write_out(model)
    assert written.counts == {op: 1}
    assert not [v for v in written.model.ir.graph.initializers.values() if v.dtype == ir.DataType.INT8]
    np.testing.assert_array_equal(_run(written.model), _run(model))


@pytest.mark.parametrize("points", [None, np.array(-5, np.int8), np.arange(-6, 6, dtype=np.int8)])
def test_sums_do_not_overflow(points: np.ndarray | None) -> None:
    """Pairs of products do not fit 16 bits, in which a CPU without VNNI adds them."""
    weights = np.full((8, 12), 127, np.int8)
    written = write_out(_product("MatMulInteger", weights, points))
    assert str(written) == "1 MatMulInteger on uint8 weights, with which the CPU does not overflow"
    feed = np.full_like(_FEED, 255)
    origin = 0 if points is None else points.astype(np.int32)
    expected = (feed.astype(np.int32) - 3) @ (weights.astype(np.int32) - origin)
    np.testing.assert_array_equal(_run(written.model, feed), expected)


def test_int8_data_are_exact_and_stay() -> None:
    model = _product("MatMulInteger", np.full((8, 12), 127, np.int8), None, "int8")
    assert write_out(model).counts == {}
