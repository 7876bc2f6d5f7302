"""Fold the shape arithmetic that rewritings bring along, where its inputs are known.

Function bodies of ONNX compute with Shape, Gather, Concat ... what a model with fixed shapes already knows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from dmlprep.passes.opset.values import Values

__all__ = ["fold"]

_LARGEST = 1024  # elements: shapes, axes and masks' corners, no weights

_BINARY = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Equal": np.equal,
    "Less": np.less,
    "Greater": np.greater,
    "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
}


def fold(node: ir.Node, values: Values) -> np.ndarray[Any, Any] | None:
    """The output of a node of shape arithmetic, ``None`` where it is not one or an input is not known."""
    if node.op_type == "Shape":
        return _shape(node, values)
    if node.op_type == "Size":
        shape = values.static_shape(node.inputs[0])
        return None if shape is None else np.array(np.prod(shape, dtype=np.int64), np.int64)
    if node.op_type == "CastLike":
        array, dtype = values.constant(node.inputs[0]), values.dtype(node.inputs[1])
        known = array is not None and array.size <= _LARGEST and array.dtype.name in _DTYPES
        return _as_type(array, dtype) if array is not None and known and dtype else None
    if node.op_type not in _FOLDS and node.op_type not in _BINARY:
        return None
    inputs = []
    for value in node.inputs:
        if value is None:
            return None
        array = values.constant(value)
        if array is None or array.size > _LARGEST or array.dtype.name not in _DTYPES:
            return None
        inputs.append(array)
    if any(a.is_ref() for a in node.attributes.values()):
        return None
    if node.op_type in _BINARY:
        result = np.asarray(_BINARY[node.op_type](inputs[0], inputs[1]))
    else:
        found = _FOLDS[node.op_type](node, inputs)
        if found is None:
            return None
        result = np.asarray(found)
    return result if result.size <= _LARGEST else None


_DTYPES = {"int64", "int32", "bool", "float16", "float32", "float64"}


def _shape(node: ir.Node, values: Values) -> np.ndarray[Any, Any] | None:
    shape = values.shape(node.inputs[0])
    if shape is None:
        return None
    start = node.attributes["start"].as_int() if "start" in node.attributes else 0
    end = node.attributes["end"].as_int() if "end" in node.attributes else None
    part = shape[start:end]
    return np.array(part, np.int64) if all(isinstance(d, int) for d in part) else None


def _int(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


def _cast(node: ir.Node, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    return _as_type(inputs[0], node.attributes["to"].as_int())


def _as_type(array: np.ndarray[Any, Any], dtype: int) -> np.ndarray[Any, Any] | None:
    to = ir.DataType(dtype)
    if array.dtype.kind == "f":
        # Floating point to integers out of range is the runtime's business; to floating point it rounds to nearest.
        return array.astype(to.numpy()) if to.name in {"FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"} else None
    return array.astype(to.numpy()) if to.name in {"INT64", "INT32", "BOOL", "FLOAT", "DOUBLE"} else None


def _div(node: ir.Node, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    a, b = inputs
    if not np.all(b):
        return None
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)), a.dtype)  # truncates toward zero


def _mod(node: ir.Node, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    a, b = inputs
    if _int(node, "fmod", 0) or a.dtype.kind == "f" or not np.all(b):
        return None
    return np.asarray(np.mod(a, b))


def _gather(node: ir.Node, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    return np.asarray(np.take(inputs[0], inputs[1], axis=_int(node, "axis", 0)))


def _slice(node: ir.Node, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    if len(inputs) < 3:
        return None
    data, starts, ends = inputs[:3]
    if data.ndim != 1 or starts.size != 1 or len(inputs) > 4:
        return None
    return data[int(starts.reshape(-1)[0]) : int(ends.reshape(-1)[0])]


def _squeeze(node: ir.Node, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    if "axes" in node.attributes:
        return None
    axes = tuple(int(a) for a in inputs[1].reshape(-1)) if len(inputs) > 1 else None
    return np.squeeze(inputs[0], axes)


def _unsqueeze(node: ir.Node, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    if "axes" in node.attributes or len(inputs) < 2:
        return None
    return np.expand_dims(inputs[0], tuple(int(a) for a in inputs[1].reshape(-1)))


def _concat(node: ir.Node, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    return np.concatenate(inputs, axis=_int(node, "axis", 0))


def _constant_of_shape(node: ir.Node, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    if inputs[0].size and int(np.prod(inputs[0])) > _LARGEST:
        return None
    fill = np.zeros(1, np.float32)
    if "value" in node.attributes:
        fill = np.asarray(node.attributes["value"].as_tensor().numpy())
        if fill.dtype.name not in _DTYPES:
            return None
    return np.full(tuple(int(d) for d in inputs[0]), fill.reshape(-1)[0], fill.dtype)


def _reshape(node: ir.Node, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    shape = [int(d) for d in inputs[1]]
    return None if 0 in shape else inputs[0].reshape(shape)


def _range(node: ir.Node, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    start, limit, delta = (i.reshape(-1)[0] for i in inputs)
    if inputs[0].dtype.kind != "i" or delta == 0 or abs((limit - start) // delta) > _LARGEST:
        return None
    return np.arange(int(start), int(limit), int(delta), dtype=inputs[0].dtype)


_FOLDS: dict[str, Any] = {
    "Cast": _cast,
    "Identity": lambda node, inputs: inputs[0],
    "Not": lambda node, inputs: np.logical_not(inputs[0]),
    "Neg": lambda node, inputs: -inputs[0],
    "Sqrt": lambda node, inputs: np.sqrt(inputs[0]) if inputs[0].dtype.kind == "f" else None,
    "Div": _div,
    "Mod": _mod,
    "Where": lambda node, inputs: np.where(inputs[0], inputs[1], inputs[2]),
    "Gather": _gather,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Reshape": _reshape,
    "Range": _range,
    "ReduceProd": lambda node, inputs: (
        np.array([np.prod(inputs[0], dtype=inputs[0].dtype)])
        if len(inputs) == 1 and inputs[0].ndim == 1 and _int(node, "keepdims", 1) and "axes" not in node.attributes
        else None
    ),
}
