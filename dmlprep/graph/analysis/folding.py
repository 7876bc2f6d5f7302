"""Compute the value of a node whose inputs are all known: the arithmetic of shapes, with numpy.

Only operators whose result has the same bits on every machine are here: integer and boolean arithmetic, movement of
elements, and the IEEE operations that round correctly (+ - * / sqrt). Sines and exponentials are left to the runtime.
The rules are those of https://onnx.ai/onnx/operators/ (opset 1 to 25).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import numpy as np
import onnx_ir as ir

from dmlprep.graph.analysis import movement
from dmlprep.graph.analysis.movement import Attributes, Evaluator, Inputs, Uncertain, axis_of, ints, required, slice_of
from dmlprep.portable.arrays import Array

__all__ = ["EVALUATORS", "NUMPY_TYPES", "Array", "Attributes", "Uncertain", "evaluate", "most_elements", "slice_of"]

_FOLDED = (
    "float32",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "bool",
    "float16",
    "float64",
    "uint32",
    "uint64",
)
NUMPY_TYPES = {int(ir.DataType.from_numpy(np.dtype(name))): np.dtype(name) for name in _FOLDED}
"""TensorProto.DataType -> numpy type, for the types that are folded."""


def _exact(inputs: Inputs) -> list[Array]:
    """Return the inputs of exact arithmetic.

    Raises:
        Uncertain: an input is missing, or is FP16, which each runtime rounds differently.
    """
    arrays = [required(a) for a in inputs]
    if any(a.dtype == np.float16 for a in arrays):
        raise Uncertain("float16")
    return arrays


def _binary(function: Callable[[Array, Array], Array]) -> Evaluator:
    def run(inputs: Inputs, attributes: Attributes, version: int) -> Array:
        a, b = _exact(inputs[:2])
        if "broadcast" in attributes or "axis" in attributes or a.dtype != b.dtype:
            raise Uncertain("broadcasting of opset 6")
        return function(a, b)

    return run


def _unary(function: Callable[[Array], Array]) -> Evaluator:
    return lambda inputs, attributes, version: function(*_exact(inputs[:1]))


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(np.divide(a, b))
    if not b.all() or (a.dtype.kind == "i" and (b == -1).any() and (a == np.iinfo(a.dtype).min).any()):
        raise Uncertain("integer division by zero")
    quotient = np.floor_divide(a, b)
    # ONNX divides integers as C does: towards zero.
    return np.asarray(quotient + ((a - quotient * b != 0) & ((a < 0) != (b < 0))).astype(a.dtype))


def _mod(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    a, b = _exact(inputs[:2])
    if a.dtype.kind in "iu" and not b.all():
        raise Uncertain("modulo zero")
    return np.asarray(np.fmod(a, b) if attributes.get("fmod", 0) else np.mod(a, b))


def _pow(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    a, b = _exact(inputs[:2])
    if a.dtype.kind in "iu" and b.dtype.kind in "iu" and (b >= 0).all() and (b < 64).all():
        return np.asarray(np.power(a, b).astype(a.dtype))
    power = float(b.reshape(-1)[0]) if a.dtype.kind == "f" and b.size == 1 else None
    if power == 2.0:
        return np.broadcast_to(a * a, np.broadcast_shapes(a.shape, b.shape))
    if power == 0.5 and ((a > 0) & (a < 1 << 24)).all():
        root = np.rint(np.sqrt(a))
        if (root * root == a).all():  # 1369 positions: 37 rows
            return np.broadcast_to(root, np.broadcast_shapes(a.shape, b.shape))
    raise Uncertain("a power that rounds")


def _variadic(function: Callable[[Array, Array], Array]) -> Evaluator:
    return lambda inputs, attributes, version: reduce(function, _exact(inputs))


def _cast(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    a = required(inputs[0])
    to = NUMPY_TYPES.get(int(attributes["to"])) if isinstance(attributes.get("to"), int) else None
    if to is None:
        raise Uncertain("cast to a type that is not folded")
    return cast(a, to)


def cast(a: Array, to: np.dtype) -> Array:
    """Return an array cast to a type as ONNX defines it.

    Raises:
        Uncertain: ONNX does not define the result (a float out of the range of an integer type).
    """
    if a.dtype.kind == "f" and to.kind in "iu":
        whole = np.trunc(a)
        info = np.iinfo(to)
        if not np.isfinite(whole).all() or (whole < info.min).any() or (whole >= float(info.max)).any():
            raise Uncertain("float to integer out of range")
    return a.astype(to)


def _constant_of_shape(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    shape = [int(v) for v in required(inputs[0])]
    value = attributes.get("value")
    if value is None:
        return np.zeros(shape, np.float32)
    return np.full(shape, np.asarray(value).reshape(-1)[0], np.asarray(value).dtype)


def _range(inputs: Inputs, attributes: Attributes, version: int) -> Array:
    start, limit, delta = (required(i).reshape(-1)[0] for i in inputs)
    if delta == 0:
        raise Uncertain("a Range with a step of zero")
    if start.dtype.kind != "i":
        raise Uncertain("a Range of floats, which runtimes round differently")
    return np.arange(int(start), int(limit), int(delta), dtype=start.dtype)


def _reduce(function: Callable[..., Array]) -> Evaluator:
    def run(inputs: Inputs, attributes: Attributes, version: int) -> Array:
        data, axes = required(inputs[0]), ints(inputs, attributes, 1, "axes")
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
    data = required(inputs[0])
    if data.dtype.kind not in "iu" or attributes.get("exclusive", 0) or attributes.get("reverse", 0):
        raise Uncertain("a sum of floats depends on its order")
    return np.cumsum(data, axis_of(int(required(inputs[1]).reshape(-1)[0]), data.ndim), dtype=data.dtype)


EVALUATORS: dict[str, Evaluator] = {
    "Abs": _unary(np.abs),
    "Add": _binary(np.add),
    "And": _binary(np.logical_and),
    "Cast": _cast,
    "Ceil": _unary(np.ceil),
    "Concat": movement.joined,
    "ConstantOfShape": _constant_of_shape,
    "CumSum": _cumsum,
    "Div": _binary(_divide),
    "Equal": _binary(np.equal),
    "Expand": movement.expanded,
    "Flatten": movement.flattened,
    "Floor": _unary(np.floor),
    "Gather": movement.gathered,
    "GatherElements": movement.gathered_elements,
    "GatherND": movement.gathered_slices,
    "Greater": _binary(np.greater),
    "GreaterOrEqual": _binary(np.greater_equal),
    "Identity": lambda inputs, attributes, version: required(inputs[0]),
    "Less": _binary(np.less),
    "LessOrEqual": _binary(np.less_equal),
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Mod": _mod,
    "Mul": _binary(np.multiply),
    "Neg": _unary(np.negative),
    "NonZero": movement.nonzero,
    "Not": _unary(np.logical_not),
    "Or": _binary(np.logical_or),
    "Pad": movement.padded,
    "Pow": _pow,
    "Range": _range,
    "ReduceMax": _extreme(np.max),
    "ReduceMin": _extreme(np.min),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "Reshape": movement.reshaped,
    "ScatterND": movement.scattered,
    "Sign": _unary(np.sign),
    "Slice": movement.sliced,
    "Split": movement.parted,
    "Sqrt": _unary(np.sqrt),
    "Squeeze": movement.squeezed,
    "Sub": _binary(np.subtract),
    "Tile": movement.tiled,
    "Transpose": lambda inputs, attributes, version: np.transpose(required(inputs[0]), attributes.get("perm")),
    "Trilu": movement.triangle,
    "Unsqueeze": movement.unsqueezed,
    "Where": lambda inputs, attributes, version: np.where(
        required(inputs[0]), required(inputs[1]), required(inputs[2])
    ),
    "Xor": _binary(np.logical_xor),
}
"""Operator of the default domain -> the function that computes it."""


def most_elements(op_type: str, inputs: Inputs, attributes: Attributes) -> int:
    """Return an upper limit of the elements in a node's outputs, before they are computed.

    Raises:
        Uncertain, ValueError, IndexError, OverflowError: the node cannot be computed.
    """
    if op_type in _GROWING:
        return _GROWING[op_type](inputs, attributes)
    shapes = [a.shape for a in inputs if a is not None]
    if op_type in _MOVING:
        return sum(math.prod(shape) for shape in shapes)
    return math.prod(np.broadcast_shapes(*shapes))


def _range_length(inputs: Inputs, attributes: Attributes) -> int:
    start, limit, delta = (required(i).reshape(-1)[0] for i in inputs)
    if delta == 0:
        raise Uncertain("a Range with a step of zero")
    if start.dtype.kind not in "iu":
        raise Uncertain("a Range of floats, which runtimes round differently")
    return max(0, -((int(start) - int(limit)) // int(delta)))


def _padded_size(inputs: Inputs, attributes: Attributes) -> int:
    data, pads = required(inputs[0]), ints(inputs, attributes, 1, "pads") or []
    sizes = zip(data.shape, pads[: data.ndim], pads[data.ndim :], strict=True)
    return math.prod(size + max(0, before) + max(0, after) for size, before, after in sizes)


def _numbers(array: Array | None) -> tuple[int, ...]:
    return tuple(int(v) for v in required(array).reshape(-1))


def _gathered_size(inputs: Inputs, attributes: Attributes) -> int:
    data, indices = required(inputs[0]), required(inputs[1])
    axis = axis_of(int(attributes.get("axis", 0)), data.ndim)
    return math.prod((*indices.shape, *data.shape[:axis], *data.shape[axis + 1 :]))


_GROWING: dict[str, Callable[[Inputs, Attributes], int]] = {
    "ConstantOfShape": lambda inputs, attributes: math.prod(_numbers(inputs[0])),
    "Expand": lambda inputs, attributes: math.prod(np.broadcast_shapes(required(inputs[0]).shape, _numbers(inputs[1]))),
    "Gather": _gathered_size,
    "GatherElements": lambda inputs, attributes: required(inputs[1]).size,
    "GatherND": lambda inputs, attributes: math.prod(
        (*required(inputs[1]).shape[:-1], *required(inputs[0]).shape[required(inputs[1]).shape[-1] :])
    ),
    "NonZero": lambda inputs, attributes: int(np.count_nonzero(required(inputs[0]))) * max(1, required(inputs[0]).ndim),
    "Pad": _padded_size,
    "Range": _range_length,
    "Tile": lambda inputs, attributes: required(inputs[0]).size * math.prod(_numbers(inputs[1])),
}
"""Operator whose outputs may be larger than its inputs -> the function that returns their number of elements.

Outputs of other operators have the inputs' elements or fewer, or the broadcast shape.
"""

_MOVING = frozenset(
    {
        *("Concat", "CumSum", "Flatten", "Identity", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape"),
        *("ScatterND", "Slice", "Split", "Squeeze", "Transpose", "Trilu", "Unsqueeze"),
    }
)


def evaluate(
    op_type: str,
    version: int,
    inputs: Inputs,
    attributes: Attributes,
    outputs: int,
    most: Callable[[int], bool] = lambda elements: True,
) -> list[Array] | None:
    """Compute a node from the values of its inputs.

    Args:
        version: the opset of the node.
        inputs: values of its inputs, ``None`` for an optional one that is absent.
        outputs: the number of its outputs.
        most: returns True if so many elements may be computed; it is called before the computation.

    Returns:
        the values of its outputs, or ``None`` where ONNX does not define them, or they are not exact or too many. Also
        ``None`` for an invalid node, and for an operator that is not in ``EVALUATORS``.
    """
    evaluator = EVALUATORS.get(op_type)
    if evaluator is None:
        return None
    try:
        if not most(most_elements(op_type, inputs, attributes)):
            return None
        with np.errstate(all="ignore"):
            result = evaluator(inputs, {**attributes, "\0outputs": outputs}, version)
    except (Uncertain, ValueError, IndexError, TypeError, OverflowError, KeyError):
        return None  # the runtime reports what is wrong with such a node
    if result is None:
        return None
    arrays = [result] if isinstance(result, np.ndarray | np.generic) else list(result)
    return [np.ascontiguousarray(a).reshape(np.shape(a)) for a in arrays] if len(arrays) == outputs else None
