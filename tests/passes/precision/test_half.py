"""FP16 numbers: rounding, what is lost, and tensors that are cast while they are saved."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dmlprep.graph.model import Model
from dmlprep.passes.precision import FP16_MAX, CastTensor, cast_tensor, measure
from dmlprep.passes.precision.fp16 import to_half
from tests.passes.precision.graphs import model_of

FLOATS = hnp.arrays(np.float32, st.integers(1, 64), elements=st.floats(width=32, allow_nan=False, allow_infinity=False))


@given(FLOATS)
@settings(max_examples=200, deadline=None)
def test_rounds_to_nearest_even_and_clamps(values):
    with np.errstate(over="ignore"):
        expected = np.clip(values, -FP16_MAX, FP16_MAX).astype(np.float16)
    np.testing.assert_array_equal(to_half(values), expected)


def test_without_a_limit_large_values_become_infinite():
    assert np.isinf(to_half(np.array([65520.0], np.float32), None)).all()
    np.testing.assert_array_equal(to_half(np.array([65519.0], np.float32), None), [65504])


def test_infinity_and_nan_stay():
    got = to_half(np.array([np.inf, -np.inf, np.nan, 1e9], np.float32))
    np.testing.assert_array_equal(got, np.array([np.inf, -np.inf, np.nan, 65504], np.float16))


@given(FLOATS)
@settings(max_examples=200, deadline=None)
def test_measure_counts_what_rounding_does(values):
    loss = measure(ir.Tensor(values))
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    assert loss.over == np.isinf(half).sum()
    assert loss.flushed == ((half == 0) & (values != 0)).sum()
    assert loss.peak == np.abs(values).max()
    assert loss.size == values.size


def test_relative_loss_of_normal_and_of_tiny_weights():
    values = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    exact = np.linalg.norm(values - values.astype(np.float16).astype(np.float32)) / np.linalg.norm(values)
    assert (
        measure(ir.Tensor(values)).relative == np.float64(exact).round(9)
        or abs(measure(ir.Tensor(values)).relative / exact - 1) < 0.5
    )
    assert measure(ir.Tensor(values * np.float32(1e-7))).relative > 0.1


def test_cast_of_a_mapped_tensor_streams(tmp_path):
    weights = np.random.default_rng(0).standard_normal((700, 900)).astype(np.float32) * 1e3
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2,700] x) => (float[2,900] y) { y = MatMul(x, w) }'
    model_of(text, {"w": weights}).save(tmp_path / "m.onnx")
    tensor = Model.open(tmp_path / "m.onnx").ir.graph.initializers["w"].const_value
    assert tensor is not None
    lazy = cast_tensor(tensor, ir.DataType.FLOAT16)
    assert isinstance(lazy, CastTensor)
    expected = weights.astype(np.float16)
    np.testing.assert_array_equal(lazy.numpy(), expected)
    assert lazy.tobytes() == expected.tobytes()
    with open(tmp_path / "raw", "wb") as file:
        lazy.tofile(file)
    assert (tmp_path / "raw").read_bytes() == expected.tobytes()
    assert lazy.nbytes == expected.nbytes


def test_scaling_by_a_power_of_two_is_exact():
    values = np.array([1e-7, -3e-8], np.float32)
    scaled = cast_tensor(ir.Tensor(values), ir.DataType.FLOAT16, exponent=20)
    np.testing.assert_allclose(scaled.numpy().astype(np.float64) / 2**20, values, rtol=2**-11)


def test_bfloat16_and_double_come_down():
    import ml_dtypes

    values = np.array([0.1, 1e6, -2.0])
    for kind in (np.float64, ml_dtypes.bfloat16):
        half = cast_tensor(ir.tensor(values.astype(kind)), ir.DataType.FLOAT16).numpy()
        np.testing.assert_array_equal(half, to_half(values.astype(kind).astype(np.float32)))
