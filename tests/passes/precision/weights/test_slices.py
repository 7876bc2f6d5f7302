"""Tensors in 8 bits with a scale for each slice: near what they were, however they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from dmlprep.core.errors import ModelRefused
from dmlprep.passes.precision.weights import slices
from dmlprep.passes.precision.weights.slices import SlicePart, Slices

Array = np.ndarray[Any, Any]


def weight(shape: tuple[int, ...], dtype: str) -> Array:
    rng = np.random.default_rng(sum(shape))
    values = rng.standard_normal(shape) * rng.choice([0.01, 1.0, 30.0], (shape[0], shape[1], *[1] * (len(shape) - 2)))
    return values.astype(dtype)


@pytest.mark.parametrize("band", [1, 100, 1 << 18])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("shape", "axis"), [((6, 5), 0), ((7, 4, 3, 3), 0), ((7, 4, 3, 3), 1), ((3, 5, 9), 1)])
def test_each_value_is_within_half_a_step(
    shape: tuple[int, ...], axis: int, dtype: str, band: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "BAND", band)
    values = weight(shape, dtype)
    values[(slice(None),) * axis + (2,)] = 0
    whole = Slices(ir.Tensor(values, name="w"), axis, "mend it")
    numbers, scales = SlicePart(whole, "numbers"), SlicePart(whole, "scales")
    assert numbers.numpy().dtype == np.int8
    assert numbers.numpy().shape == shape == tuple(numbers.shape.numpy())
    assert scales.numpy().dtype == values.dtype
    assert scales.numpy().shape == (shape[axis],)
    assert (numbers.nbytes, scales.nbytes) == (len(numbers.tobytes()), len(scales.tobytes()))
    scale = scales.numpy().astype(np.float64).reshape([-1 if n == axis else 1 for n in range(len(shape))])
    off = np.abs(numbers.numpy() * scale - values.astype(np.float64))
    # Half a step; the largest value may be cut by what the scale lost when it was stored: 2^-11 of 127 steps in FP16.
    assert np.all(off <= scale * (0.5 + (127 * 2.0**-11 if dtype == "float16" else 1e-4)))
    others = tuple(n for n in range(len(shape)) if n != axis)
    top = np.abs(numbers.numpy().astype(int)).max(others)
    assert np.all((top == 127) | (scale.reshape(-1) == 0))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_no_number_is_refused(axis: int, bad: float) -> None:
    values = weight((4, 5, 3), "float32")
    values[1, 2, 0] = bad
    with pytest.raises(ModelRefused, match="NaN") as refused:
        Slices(ir.Tensor(values, name="w"), axis, "mend it").numbers()
    assert refused.value.code == "DP415"
    assert "'w'" in str(refused.value)
