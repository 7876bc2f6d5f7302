"""Weights in blocks: near what they were, packed as ONNX Runtime reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from dmlprep.core.errors import ModelRefused
from dmlprep.passes.precision.weights.blocks import Blocks, Part, PartTensor, Quantised

Array = np.ndarray[Any, Any]

KINDS = {np.dtype(np.float32): ir.DataType.FLOAT, np.dtype(np.float16): ir.DataType.FLOAT16}


def rounded(weight: Array, turned: bool, blocks: Blocks) -> dict[Part, Array]:
    given_as = np.ascontiguousarray(weight.T) if turned else weight
    whole = Quantised(ir.Tensor(given_as, name="w"), turned, blocks, KINDS[weight.dtype])
    parts: tuple[Part, ...] = ("numbers", "scales") if blocks.symmetric else ("numbers", "scales", "zeros")
    return {part: PartTensor(whole, part).numpy() for part in parts}


def widened(parts: dict[Part, Array], blocks: Blocks) -> Array:
    """[depth, columns] in FP64, by the formula of the operator's documentation."""

    def unpacked(numbers: Array) -> Array:
        return numbers if blocks.bits == 8 else np.stack([numbers & 15, numbers >> 4], -1).reshape(len(numbers), -1)

    columns, count = parts["scales"].shape
    numbers = unpacked(parts["numbers"].reshape(columns, -1)).reshape(columns, count, blocks.size).astype(np.float64)
    middle = np.full((columns, count), 1 << blocks.bits - 1)
    zeros = unpacked(parts["zeros"])[:, :count] if "zeros" in parts else middle
    return ((numbers - zeros[..., None]) * parts["scales"].astype(np.float64)[..., None]).reshape(columns, -1).T


@st.composite
def weights(draw: st.DrawFn) -> tuple[Array, Blocks]:
    blocks = Blocks(draw(st.sampled_from((4, 8))), draw(st.sampled_from((16, 32, 64))), draw(st.booleans()))
    shape = (blocks.size * draw(st.integers(1, 5)), draw(st.integers(1, 9)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    values = rng.standard_normal(shape) * draw(st.sampled_from((1e-3, 0.02, 3.0, 200.0)))
    values = values + draw(st.sampled_from((0.0, 0.1, -5.0)))
    values[:, 0] *= draw(st.sampled_from((0.0, 1.0)))
    return values.astype(draw(st.sampled_from((np.float32, np.float16)))), blocks


@settings(max_examples=60, deadline=None)
@given(weights(), st.booleans())
def test_each_value_is_within_a_step(made: tuple[Array, Blocks], turned: bool) -> None:
    weight, blocks = made
    parts = rounded(weight, turned, blocks)
    found = widened(parts, blocks)
    steps = np.repeat(np.abs(parts["scales"].astype(np.float64)).T, blocks.size, 0)
    # Half a step; beside the middle of symmetric numbers, the side without the lowest one is cut by one more.
    slack = 1.0 if blocks.symmetric else 0.5
    lost = 2.0**-10 * np.abs(weight.astype(np.float64)) + 2.0**-23  # the scale is rounded to the weight's type
    assert (np.abs(found - weight.astype(np.float64)) <= slack * steps * 1.01 + (1 << blocks.bits) * lost).all()


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_onnx_runtime_computes_with_it(bits: int, symmetric: bool, turned: bool, kind: type) -> None:
    """Odd numbers of blocks too: packed zero points end with half a byte then."""
    rng = np.random.default_rng(bits)
    blocks = Blocks(bits, 32, symmetric)
    weight = (rng.standard_normal((96, 7)) * 0.1).astype(kind)
    parts = rounded(weight, turned, blocks)
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    node = helper.make_node(
        "MatMulNBits", ["x", *parts], ["y"], domain="com.microsoft", K=96, N=7, bits=bits, block_size=32
    )
    ends = [helper.make_tensor_value_info(name, dtype, shape) for name, shape in (("x", [3, 96]), ("y", [3, 7]))]
    tensors = [numpy_helper.from_array(array, name) for name, array in parts.items()]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], tensors)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    x = rng.standard_normal((3, 96)).astype(kind)
    (y,) = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    expected = x.astype(np.float64) @ widened(parts, blocks)
    near = 4e-3 if kind is np.float16 else 1e-5
    assert np.abs(y.astype(np.float64) - expected).max() <= near * np.abs(expected).max()


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_the_bytes_are_those_of_onnx_runtime_s_own_quantizer(kind: type, bits: int, symmetric: bool) -> None:
    """In FP16 the quantizer rounds by the scale before it is stored, and dmlprep by the stored scale."""
    quantizer = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    weight = (np.random.default_rng(3).standard_normal((128, 24)) * 0.02).astype(kind)
    dtype = helper.np_dtype_to_tensor_dtype(weight.dtype)
    ends = [onnx.helper.make_tensor_value_info(name, dtype, shape) for name, shape in (("x", [3, 128]), ("y", [3, 24]))]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")]
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    theirs = quantizer.MatMulNBitsQuantizer(model, bits=bits, block_size=32, is_symmetric=symmetric, accuracy_level=0)
    theirs.process()
    made = theirs.model.model.graph
    arrays = {t.name: numpy_helper.to_array(t) for t in made.initializer}
    own = rounded(weight, False, Blocks(bits, 32, symmetric)).values()
    for name, ours in zip(made.node[0].input[1:], own, strict=True):
        apart = np.mean(arrays[name].reshape(-1) != ours.reshape(-1))
        assert apart <= (0.05 if kind is np.float16 else 0), name


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("symmetric", [False, True])
def test_what_is_no_number_is_refused_by_the_weight_s_name(wrong: float, symmetric: bool) -> None:
    weight = np.ones((32, 4), np.float32)
    weight[5, 2] = wrong
    with pytest.raises(ModelRefused, match="NaN") as refused:
        rounded(weight, False, Blocks(4, 32, symmetric))
    assert refused.value.code == "DP415"
    assert "'w'" in refused.value.where


def test_the_numbers_are_not_kept_and_the_scales_are() -> None:
    """Scales are an eighth of the numbers at most, and are written after them."""
    whole = Quantised(ir.Tensor(np.ones((64, 8), np.float32), name="w"), False, Blocks(4, 32, True), ir.DataType.FLOAT)
    first = whole.get("numbers")
    assert whole.get("numbers") is not first
    assert whole.get("scales") is whole.get("scales")
    tensor = PartTensor(whole, "numbers")
    assert len(tensor.tobytes()) == tensor.nbytes == 64 * 8 // 2
