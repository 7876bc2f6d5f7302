"""FP16 rounding as FP32 nodes gives the very FP16 numbers, in both directions of rounding."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.precision.emulation.rounding import Builder, Constants, Rounding
from tests.passes.precision.graphs import model_of, run


def rounded(values: np.ndarray, rounding: Rounding, opset: int) -> np.ndarray:
    model = model_of(f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[n] x) => (float[n] y) {{ y = Neg (x) }}')
    graph, names = model.ir.graph, Names(model.ir)
    builder = Builder(graph, names, opset, rounding, Constants(model.ir, names))
    result = builder.round(graph.inputs[0])
    builder.place_last()
    graph.outputs[0] = result
    return np.asarray(run(model, {"x": values})[result.name or ""])


def _values() -> np.ndarray:
    """Every finite FP16 number, the middles between neighbours, and their FP32 neighbours, of both signs."""
    halves = np.arange(0, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (halves[:-1] + halves[1:]) / 2
    near = [np.nextafter(middles, np.float32(way)) for way in (0, np.inf)]
    every = np.concatenate([halves, middles, *near, np.float32([65519, 65520, 7e4, 1e30, 3e-8, 2.9e-8, 1e-38])])
    return np.concatenate([every, -every])


@pytest.mark.parametrize("opset", [10, 17])
def test_to_nearest_even(opset: int) -> None:
    values = _values()
    with np.errstate(over="ignore"):
        want = values.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(rounded(values, "nearest", opset), want)


@pytest.mark.parametrize("opset", [10, 17])
def test_towards_zero(opset: int) -> None:
    values = _values()
    clipped = np.clip(values, -65504, 65504)
    nearest = clipped.astype(np.float16)
    over = np.abs(nearest.astype(np.float32)) > np.abs(clipped)
    want = np.where(over, np.nextafter(nearest, np.float16(0)), nearest).astype(np.float32)
    np.testing.assert_array_equal(rounded(values, "toward-zero", opset), want)


def test_a_constant_is_stored_once() -> None:
    model = model_of('<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Neg (x) }')
    constants = Constants(model.ir, Names(model.ir))
    half, one = np.float32(0.5), np.float32(1)
    assert constants.get(np.array(half)) is constants.get(np.array(half))
    assert constants.get(np.array([1, 2])) is constants.get(np.array([1, 2]))
    assert constants.get(np.zeros(3, np.float32)) is not constants.get(np.zeros(4, np.float32))
    assert constants.get(np.array(one)).dtype == ir.DataType.FLOAT
    assert len(model.ir.graph.initializers) == 5
