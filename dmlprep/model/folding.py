"""Compute the value of a node whose inputs are all known: the arithmetic of shapes, done with numpy.

Only operators whose result is the same bits on every machine are here: integer and boolean arithmetic, movement of
elements, and the IEEE operations that round correctly (+ - * / sqrt). Sines and exponentials are left to the runtime.
Rules are those of https://onnx.ai/onnx/operators/ (opset 1 to 25).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["EVALUATORS", "NUMPY_TYPES", "Array", "Attributes", "Uncertain", "evaluate", "slice_of"]

Array = np.ndarray[Any, np.dtype[Any]]
Attributes = Mapping[str, Any]
"""Attribute name -> int, float, str, list of these, or numpy array for a tensor."""

NUMPY_TYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32),
    2: np.dtype(np.uint8),
    3: np.dtype(np.int8),
    4: np.dtype(np.uint16),
    5: np.dtype(np.int16),
    6: np.dtype(np.int32),
    7: np.dtype(np.int64),
    9: np.dtype(np.bool_),
    10: np.dtype(np.float16),
    11: np.dtype(np.float64),
    12: np.dtype(np.uint32),
    13: np.dtype(np.uint64),
}
"""TensorProto.DataType -> numpy type, for the element types that are folded."""

Inputs = Sequence[Array | None]
Evaluator = Callable[[Inputs, Attributes, int], Sequence[Array] | Array | None]


class Uncertain(Exception):
    """The result is not defined by ONNX (division by zero, NaN to integer): the node is left to the runtime."""


def _given(value: Array | None) -> Array:
    if value is None:
        raise Uncertain("a required input is missing")
    return value


def _ints(inputs: Inputs, attributes: Attributes, index: int, name: str) -> list[int] | None:
    """An integer list that is an attribute in old opsets and an input in new ones."""
    if len(inputs) > index and inputs[index] is not None:
        return [int(v) for v in np.asarray(inputs[index]).reshape(-1)]
    value = attributes.get(name)
    if value is None:
        return None
    return [int(v) for v in value] if isinstance(value, (list, tuple)) else [int(value)]


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise Uncertain(f"axis {axis} of rank {rank}")
    return axis % rank


def _exact(*arrays: Array) -> None:
    """Half-precision arithmetic rounds differently from runtime to runtime."""
    if any(a.dtype == np.float16 for a in arrays):
        raise Uncertain("float16")


def _binary(function: Callable[[Array, Array], Array]) -> Evaluator:
    def run(inputs: Inputs, attributes: Attributes, version: int) -> Array:
        a, b = _given(inputs[0]), _given(inputs[1])
        if "broadcast" in attributes or "axis" in attributes or a.dtype != b.dtype:
            raise Uncertain("broadcasting of opset 6")
        _exact(a, b)
        return function(a, b)

    return run


def _unary(function: Callable[[Array], Array]) -> Evaluator:
    def run(inputs: Inputs, attributes: Attributes, version: int) -> Array:
        a = _given(inputs[0])
        _exact(a)
        return function(a)

    return run


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(np.divide(a, b))
    if not b.all() or (a.dtype.kind == "i" and (b == -1).any() and (a == np.iinfo(a.dtype).min).any()):
        raise Uncertain("integer division by zero")
    quotient = np.floor_divide(a, b)
    # ONNX divides integers as C does: towards zero.
    return np.asarray(quotient + ((a - quotient * b != 0) & ((a < 0) != (b < 0))).astype(a.dtype))


def _mod(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    a, b = _given(inputs[0]), _given(inputs[1])
    _exact(a, b)
    if a.dtype.kind in "iu" and not b.all():
        raise Uncertain("modulo zero")
    return np.fmod(a, b) if attributes.get("fmod", 0) else np.mod(a, b)


def _pow(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    a, b = _given(inputs[0]), _given(inputs[1])
    _exact(a, b)
    if a.dtype.kind in "iu" and b.dtype.kind in "iu" and (b >= 0).all() and (b < 64).all():
        return np.power(a, b).astype(a.dtype)
    if a.dtype.kind == "f" and b.size == 1 and float(b.reshape(-1)[0]) == 2.0:
        return np.broadcast_to(a * a, np.broadcast_shapes(a.shape, b.shape))
    raise Uncertain("a power that rounds")


def _variadic(function: Callable[[Array, Array], Array]) -> Evaluator:
    def run(inputs: Inputs, attributes: Attributes, version: int) -> Array:
        arrays = [_given(a) for a in inputs]
        _exact(*arrays)
        result = arrays[0]
        for array in arrays[1:]:
            result = function(result, array)
        return result

    return run


def _cast(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    a = _given(inputs[0])
    to = NUMPY_TYPES.get(int(attributes["to"])) if isinstance(attributes.get("to"), int) else None
    if to is None:
        raise Uncertain("cast to a type that is not folded")
    return cast(a, to)


def cast(a: Array, to: np.dtype[Any]) -> Array:
    """Cast as ONNX does where it says how."""
    if a.dtype.kind == "f" and to.kind in "iu":
        whole = np.trunc(a)
        info = np.iinfo(to)
        if not np.isfinite(whole).all() or (whole < info.min).any() or (whole >= float(info.max)).any():
            raise Uncertain("float to integer out of range")
    return a.astype(to)


def _constant_of_shape(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    shape = [int(v) for v in _given(inputs[0])]
    value = attributes.get("value")
    if value is None:
        return np.zeros(shape, np.float32)
    return np.full(shape, np.asarray(value).reshape(-1)[0], np.asarray(value).dtype)


def _range(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    start, limit, delta = (_given(i).reshape(-1)[0] for i in inputs)
    if start.dtype.kind != "i" or delta == 0:
        raise Uncertain("a range of floats")
    return np.arange(int(start), int(limit), int(delta), dtype=start.dtype)


def _slice(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    data = _given(inputs[0])
    starts, ends = _ints(inputs, attributes, 1, "starts"), _ints(inputs, attributes, 2, "ends")
    if starts is None or ends is None:
        raise Uncertain("no bounds")
    axes = _ints(inputs, attributes, 3, "axes") or list(range(len(starts)))
    steps = _ints(inputs, {}, 4, "steps") or [1] * len(starts)
    index: list[slice] = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = _axis(axis, data.ndim)
        index[axis] = slice_of(start, end, step, data.shape[axis])
    return data[tuple(index)]


def slice_of(start: int, end: int, step: int, size: int) -> slice:
    """ONNX's Slice of one axis as a Python slice."""
    if step == 0:
        raise Uncertain("a step of zero")
    low, high = (0, size) if step > 0 else (0, size - 1)
    start = min(max(start + size if start < 0 else start, low), high)
    end = min(max(end + size if end < 0 else end, 0 if step > 0 else -1), size)
    return slice(start, None if end < 0 else end, step)


def _gather(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    data, indices = _given(inputs[0]), _given(inputs[1])
    axis = _axis(int(attributes.get("axis", 0)), data.ndim)
    if indices.size and not (-data.shape[axis] <= indices.min() and indices.max() < data.shape[axis]):
        raise Uncertain("an index out of range")
    return np.take(data, indices, axis)


def _concat(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    return np.concatenate([_given(a) for a in inputs], int(attributes.get("axis", 1)))


def _unsqueeze(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    data, axes = _given(inputs[0]), _ints(inputs, attributes, 1, "axes") or []
    return np.expand_dims(data, tuple(axes)) if axes else data


def _squeeze(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    data, axes = _given(inputs[0]), _ints(inputs, attributes, 1, "axes")
    return np.squeeze(data) if axes is None else np.squeeze(data, tuple(axes))


def _reshape(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    data, shape = _given(inputs[0]), _ints(inputs, attributes, 1, "shape") or []
    if not attributes.get("allowzero", 0):
        shape = [data.shape[i] if v == 0 else v for i, v in enumerate(shape)]
    return data.reshape(shape)


def _flatten(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    data = _given(inputs[0])
    axis = int(attributes.get("axis", 1))
    axis = axis + data.ndim if axis < 0 else axis
    return data.reshape(math.prod(data.shape[:axis]), math.prod(data.shape[axis:]))


def _transpose(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    return np.transpose(_given(inputs[0]), attributes.get("perm"))


def _expand(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    data = _given(inputs[0])
    return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(int(v) for v in _given(inputs[1]))))


def _tile(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    if version < 6:
        raise Uncertain("Tile of opset 1")
    return np.tile(_given(inputs[0]), _given(inputs[1]))


def _where(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    return np.where(_given(inputs[0]), _given(inputs[1]), _given(inputs[2]))


def _reduce(function: Callable[..., Array]) -> Evaluator:
    def run(inputs: Inputs, attributes: Attributes, version: int) -> Array:
        data, axes = _given(inputs[0]), _ints(inputs, attributes, 1, "axes")
        if data.dtype.kind not in "iu":
            raise Uncertain("a reduction of floats depends on its order")
        if not axes and attributes.get("noop_with_empty_axes", 0):
            return data
        keep = bool(attributes.get("keepdims", 1))
        return function(data, axis=tuple(axes) if axes else None, keepdims=keep, dtype=data.dtype)

    return run


def _extreme(function: Callable[..., Array]) -> Evaluator:
    return _reduce(lambda data, axis, keepdims, dtype: function(data, axis=axis, keepdims=keepdims))


def _cumsum(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    data = _given(inputs[0])
    if data.dtype.kind not in "iu" or attributes.get("exclusive", 0) or attributes.get("reverse", 0):
        raise Uncertain("a sum of floats depends on its order")
    return np.cumsum(data, _axis(int(_given(inputs[1]).reshape(-1)[0]), data.ndim), dtype=data.dtype)


def _trilu(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    k = inputs[1] if len(inputs) > 1 else None
    offset = 0 if k is None else int(k.reshape(-1)[0])
    return (np.triu if attributes.get("upper", 1) else np.tril)(_given(inputs[0]), offset)


def _split(inputs: Inputs, attributes: Attributes, version: int) -> Sequence[Array] | None:
    data = _given(inputs[0])
    axis = _axis(int(attributes.get("axis", 0)), data.ndim)
    sizes = _ints(inputs, attributes, 1, "split")
    if sizes is None:
        parts = int(attributes["\0outputs"])
        each = -(-data.shape[axis] // parts)
        sizes = [min(each, max(0, data.shape[axis] - each * i)) for i in range(parts)]
    if sum(sizes) != data.shape[axis]:
        raise Uncertain("sizes do not add up")
    return np.split(data, np.cumsum(sizes)[:-1], axis)


def _nonzero(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    data = _given(inputs[0])
    return np.stack(np.nonzero(data.reshape(1) if data.ndim == 0 else data)).astype(np.int64)


def _scatter_nd(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    if attributes.get("reduction", "none") not in ("none", b"none"):
        raise Uncertain("a reduction")
    data, indices, updates = _given(inputs[0]).copy(), _given(inputs[1]), _given(inputs[2])
    last = indices.shape[-1]
    if last > data.ndim or updates.shape != indices.shape[:-1] + data.shape[last:]:
        raise Uncertain("shapes of ScatterND")
    rows = indices.reshape(-1, last)
    for axis in range(last):
        if rows.size and not (-data.shape[axis] <= rows[:, axis].min() and rows[:, axis].max() < data.shape[axis]):
            raise Uncertain("an index out of range")
    if len(np.unique(np.mod(rows, data.shape[:last]), axis=0)) != len(rows):
        raise Uncertain("an index written twice")
    data[tuple(rows.T)] = updates.reshape((len(rows), *data.shape[last:]))
    return data


def _gather_elements(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    data, indices = _given(inputs[0]), _given(inputs[1])
    return np.take_along_axis(data, indices, _axis(int(attributes.get("axis", 0)), data.ndim))


def _pad(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    data, pads = _given(inputs[0]), _ints(inputs, attributes, 1, "pads")
    value = inputs[2] if len(inputs) > 2 else None
    if version < 11 or pads is None or len(inputs) > 3 or attributes.get("mode", "constant") != "constant":
        raise Uncertain("a pad of another kind")
    if min(pads, default=0) < 0 or len(pads) != 2 * data.ndim:
        raise Uncertain("a negative pad")
    fill = 0 if value is None else value.reshape(-1)[0]
    return np.pad(data, list(zip(pads[: data.ndim], pads[data.ndim :], strict=True)), constant_values=fill)


def _identity(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    return _given(inputs[0])


EVALUATORS: dict[str, Evaluator] = {
    "Abs": _unary(np.abs),
    "Add": _binary(np.add),
    "And": _binary(np.logical_and),
    "Cast": _cast,
    "Ceil": _unary(np.ceil),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "CumSum": _cumsum,
    "Div": _binary(_divide),
    "Equal": _binary(np.equal),
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": _unary(np.floor),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "Identity": _identity,
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Mod": _mod,
    "Mul": _binary(np.multiply),
    "Neg": _unary(np.negative),
    "NonZero": _nonzero,
    "Not": _unary(np.logical_not),
    "Or": _binary(np.logical_or),
    "Pad": _pad,
    "Pow": _pow,
    "Range": _range,
    "ReduceMax": _extreme(np.max),
    "ReduceMin": _extreme(np.min),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "Reshape": _reshape,
    "ScatterND": _scatter_nd,
    "Sign": _unary(np.sign),
    "Slice": _slice,
    "Split": _split,
    "Sqrt": _unary(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _binary(np.subtract),
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    "Xor": _binary(np.logical_xor),
}
"""Operators of the default domain that are folded."""


def evaluate(op_type: str, version: int, inputs: Inputs, attributes: Attributes, outputs: int) -> list[Array] | None:
    """Compute a node.

    Args:
        version: the opset it is written in.
        inputs: values of its inputs, ``None`` for an optional one that is absent.
        outputs: how many outputs it has.

    Returns:
        the values of its outputs, or ``None`` where ONNX does not define them or they are not exact.
    """
    evaluator = EVALUATORS.get(op_type)
    if evaluator is None:
        return None
    try:
        with np.errstate(all="ignore"):
            result = evaluator(inputs, {**attributes, "\0outputs": outputs}, version)
    except (Uncertain, ValueError, IndexError, TypeError, OverflowError, KeyError):
        return None  # the runtime says what is wrong with such a node, in its own words
    if result is None:
        return None
    arrays = [result] if isinstance(result, np.ndarray | np.generic) else list(result)
    return [np.ascontiguousarray(a).reshape(np.shape(a)) for a in arrays] if len(arrays) == outputs else None
