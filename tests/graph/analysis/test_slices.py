"""Slices with numbers at the ends of their range: as ONNX Runtime cuts them, or not known at all."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from dmlprep.graph.analysis.folding import evaluate
from dmlprep.graph.analysis.shapes import Inference

_LOW, _HIGH = -(2**63), 2**63 - 1
_PLACES = (_LOW, _LOW + 1, -(2**31), -9, -8, -1, 0, 1, 7, 8, 9, 2**31 - 1, 2**31, _HIGH - 1, _HIGH)
_STEPS = (_LOW, _LOW + 1, -9, -2, -1, 1, 2, 9, _HIGH - 1, _HIGH)
_NAMES = ("s", "e", "a", "t")

Array = np.ndarray[Any, np.dtype[np.int64]]


def _model(dims: list[Any], constants: dict[str, Array]) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.INT64, dims)]
    inputs += [helper.make_tensor_value_info(n, TensorProto.INT64, ["k"]) for n in _NAMES if n not in constants]
    output = helper.make_tensor_value_info("y", TensorProto.INT64, ["o"] * len(dims))
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([helper.make_node("Slice", ["x", *_NAMES], ["y"])], "g", inputs, [output], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture(scope="module")
def runtime() -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(_model(["n", "m"], {}).SerializeToString(), options)


def _cut(data: Array, *numbers: list[int]) -> Array | None:
    found = evaluate("Slice", 13, [data, *(np.array(n, np.int64) for n in numbers)], {}, 1)
    return None if found is None else found[0]


def _run(session: Any, data: Array, *numbers: list[int]) -> Array:
    fed = {name: np.array(n, np.int64) for name, n in zip(_NAMES, numbers, strict=True)}
    result: Array = session.run(None, {"x": data, **fed})[0]
    return result


@pytest.mark.parametrize("size", [0, 1, 8])
def test_every_end_and_step(runtime: onnxruntime.InferenceSession, size: int) -> None:
    data = np.arange(size * 2, dtype=np.int64).reshape(size, 2)
    wrong, unknown = [], []
    for start, end, step in product(_PLACES, _PLACES, _STEPS):
        numbers = [start], [end], [0], [step]
        ours, theirs = _cut(data, *numbers), _run(runtime, data, *numbers)
        if ours is None:
            unknown.append((end, step))
        elif not np.array_equal(ours, theirs):
            wrong.append((start, end, step))
    assert wrong == []
    # ONNX takes nothing here, and ONNX Runtime all: who is right is not for us to say.
    assert set(unknown) == {(end, step) for end in (2**31 - 1, _HIGH) for step in _STEPS if step < 0}


@settings(max_examples=300, deadline=None)
@given(
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.lists(st.tuples(*(st.sampled_from(_PLACES) | st.integers(-7, 7),) * 2), min_size=2, max_size=2),
    st.lists(st.sampled_from(_STEPS), min_size=2, max_size=2),
    st.sampled_from([[0, 1], [1, 0], [-1, -2]]),
)
def test_two_axes_against_onnx_and_its_runtime(
    dims: tuple[int, int], places: list[tuple[int, int]], steps: list[int], axes: list[int]
) -> None:
    data = np.arange(dims[0] * dims[1], dtype=np.int64).reshape(dims)
    starts, ends = (list(column) for column in zip(*places, strict=True))
    ours = _cut(data, starts, ends, axes, steps)
    if ours is None:
        return
    model = _model(["n", "m"], {})
    session = onnxruntime.InferenceSession(model.SerializeToString())
    np.testing.assert_array_equal(ours, _run(session, data, starts, ends, axes, steps))
    # The reference evaluator takes Python's rule for a start before the first element, which is not ONNX's.
    before = any(t < 0 and s < -dims[a] for s, a, t in zip(starts, axes, steps, strict=True))
    if not before:
        np.testing.assert_array_equal(ours, _run(ReferenceEvaluator(model), data, starts, ends, axes, steps))


def test_inferred_sizes_are_those_of_the_runtime(runtime: onnxruntime.InferenceSession) -> None:
    data = np.zeros((8, 2), np.int64)
    wrong = []
    for start, end, step in product((_LOW, -9, 3, _HIGH), (_LOW, -1, 2**31 - 1, _HIGH), (_LOW, -1, 1, _HIGH)):
        numbers = [start], [end], [-2], [step]
        constants = {name: np.array(n, np.int64) for name, n in zip(_NAMES, numbers, strict=True)}
        model = ir.from_proto(_model([8, 2], constants))
        dims = Inference.of(model).dims(model.graph.outputs[0]) or ()
        theirs = _run(runtime, data, *numbers).shape
        known = step > 0 or end not in (2**31 - 1, _HIGH)
        if dims != (theirs[0] if known else None, 2):
            wrong.append((start, end, step, dims, theirs))
    assert wrong == []
