"""What is folded has the very values that ONNX Runtime computes; what ONNX leaves open is not folded."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from dmlprep.graph.analysis.folding import evaluate

I64 = np.int64
DATA = np.arange(-12, 12, dtype=I64).reshape(2, 3, 4)
BIG = np.iinfo(I64).max
_HALF = np.array(0.5, np.float32)


def a(*values: int) -> np.ndarray:
    return np.array(values, I64)


CASES: dict[str, tuple[str, list[np.ndarray | None], dict[str, Any], int]] = {
    "Div rounds to zero": ("Div", [a(7, -7, 7, -7, 6), a(2, 2, -2, -2, -3)], {}, 1),
    "Mod has the sign of the divisor": ("Mod", [a(7, -7, 7, -7), a(3, 3, -3, -3)], {}, 1),
    "Mod as C": ("Mod", [a(7, -7, 7, -7), a(3, 3, -3, -3)], {"fmod": 1}, 1),
    "Slice backwards": ("Slice", [DATA, a(-1, BIG), a(-BIG, 0), a(0, 2), a(-1, -2)], {}, 1),
    "Slice beyond the end": ("Slice", [DATA, a(-99), a(99), a(1)], {}, 1),
    "Gather from the end": ("Gather", [DATA, a(-1, 0)], {"axis": 1}, 1),
    "Split that leaves a rest": ("Split", [a(1, 2, 3, 4, 5)], {"num_outputs": 2}, 2),
    "Split by sizes": ("Split", [a(1, 2, 3, 4, 5), a(1, 4)], {}, 2),
    "Reshape keeps with 0": ("Reshape", [DATA, a(0, -1)], {}, 1),
    "Concat": ("Concat", [DATA, DATA], {"axis": -1}, 1),
    "Expand both ways": ("Expand", [a(1, 2, 3).reshape(3, 1), a(2, 1, 4)], {}, 1),
    "Tile": ("Tile", [a(1, 2), a(3)], {}, 1),
    "Where": ("Where", [np.array([True, False]), a(1), a(2, 3)], {}, 1),
    "NonZero": ("NonZero", [DATA], {}, 1),
    "ScatterND": ("ScatterND", [a(1, 2, 3, 4), a(0, -1).reshape(2, 1), a(9, 8)], {}, 1),
    "GatherElements of a part": ("GatherElements", [DATA, np.ones((1, 2, 4), I64)], {"axis": 1}, 1),
    "GatherElements": ("GatherElements", [DATA, np.zeros((2, 3, 1), I64)], {"axis": 2}, 1),
    "GatherND": ("GatherND", [DATA, a(1, 0, -1, 2).reshape(2, 1, 2)], {}, 1),
    "GatherND of elements": ("GatherND", [a(5, 6, 7), a(2, -3, 0).reshape(1, 3, 1)], {}, 1),
    "Pad": ("Pad", [DATA, a(0, 1, 0, 0, 0, 2), a(5).reshape(())], {}, 1),
    "Trilu": ("Trilu", [DATA, np.array(1, I64)], {"upper": 0}, 1),
    "Cast to int": ("Cast", [np.array([1.9, -1.9, 3e9], np.float32)], {"to": 7}, 1),
    "Range": ("Range", [np.array(9, I64), np.array(0, I64), np.array(-2, I64)], {}, 1),
    "ReduceSum without axes": ("ReduceSum", [DATA, a()], {"noop_with_empty_axes": 1}, 1),
    "ReduceProd": ("ReduceProd", [DATA + 20, a(1)], {"keepdims": 0}, 1),
    "CumSum": ("CumSum", [DATA, np.array(-1, I64)], {}, 1),
    "Squeeze": ("Squeeze", [DATA[:, :1], a(1)], {}, 1),
    "Unsqueeze": ("Unsqueeze", [DATA, a(0, -1)], {}, 1),
    "Transpose": ("Transpose", [DATA], {}, 1),
    "Pow that is a square root": ("Pow", [np.array([1369, 1, 16777216 - 8192 + 1], np.float32), _HALF], {}, 1),
    "Sqrt": ("Sqrt", [np.array([2, 3, 5], np.float32)], {}, 1),
}


def by_onnxruntime(
    op_type: str, arrays: list[np.ndarray | None], attributes: dict[str, Any], outputs: int
) -> list[Any]:
    names = [f"i{i}" if array is not None else "" for i, array in enumerate(arrays)]
    node = helper.make_node(op_type, names, [f"o{i}" for i in range(outputs)], **attributes)
    given = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in given.items()
    ]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=name) for name in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, given))


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str) -> None:
    op_type, arrays, attributes, outputs = CASES[name]
    found = evaluate(op_type, 18, arrays, attributes, outputs)
    assert found is not None
    for array, want in zip(found, by_onnxruntime(op_type, arrays, attributes, outputs), strict=True):
        assert (array.dtype, array.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(array, want)


LEFT: dict[str, tuple[str, list[np.ndarray | None], dict[str, Any]]] = {
    "division by zero": ("Div", [a(1), a(0)], {}),
    "the smallest number by -1": ("Div", [a(np.iinfo(I64).min), a(-1)], {}),
    "modulo zero": ("Mod", [a(1), a(0)], {}),
    "arithmetic of halves": ("Add", [np.ones(1, np.float16), np.ones(1, np.float16)], {}),
    "NaN to integer": ("Cast", [np.array([np.nan], np.float32)], {"to": 7}),
    "too large for the integer": ("Cast", [np.array([3e9], np.float32)], {"to": 6}),
    "a sum of floats": ("ReduceSum", [np.ones((2, 2), np.float32)], {}),
    "a power that rounds": ("Pow", [np.ones(1, np.float32), np.full(1, 3, np.float32)], {}),
    "a square root that rounds": ("Pow", [np.array([1369, 2], np.float32), _HALF], {}),
    "a square root whose square rounds": ("Pow", [np.array([1e30], np.float32), _HALF], {}),
    "the square root of zero": ("Pow", [np.array([-0.0], np.float32), _HALF], {}),
    "an index out of range": ("Gather", [a(1, 2), a(2)], {}),
    "an index of a slice out of range": ("GatherND", [a(1, 2), a(2).reshape(1, 1)], {}),
    "slices of batches": ("GatherND", [a(1, 2).reshape(1, 2), a(0).reshape(1, 1)], {"batch_dims": 1}),
    "more indices than dimensions": ("GatherND", [a(1, 2), a(0, 0).reshape(1, 2)], {}),
    "a duplicate index": ("ScatterND", [a(1, 2), a(1, -1).reshape(2, 1), a(8, 9)], {}),
    "sizes that do not add up": ("Split", [a(1, 2, 3), a(1, 1)], {}),
    "a step of zero": ("Slice", [a(1, 2), a(0), a(2), a(0), a(0)], {}),
    "shapes that do not fit": ("Reshape", [a(1, 2, 3), a(2, 2)], {}),
    "a missing input": ("Add", [a(1), None], {}),
    "an operator that rounds": ("Sin", [np.ones(1, np.float32)], {}),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_the_runtime(name: str) -> None:
    op_type, arrays, attributes = LEFT[name]
    assert evaluate(op_type, 18, arrays, attributes, 1) is None
