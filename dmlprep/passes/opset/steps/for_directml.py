"""Equal forms of nodes that DirectML has no kernel for at any opset, in operators that it has.

They are for nodes that are asked for by name (``lower(rewrite=...)``), not for the way to an older opset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from dmlprep.passes.opset.build import Builder, CannotLower, T
from dmlprep.passes.opset.steps.recurrent import ONE_STEP
from dmlprep.passes.opset.steps.resizing import by_matrices
from dmlprep.passes.opset.steps.twins import TWINS

_UNSIGNED = {T.UINT8, T.UINT16, T.UINT32, T.UINT64}
_FLOATS = {T.FLOAT, T.FLOAT16}
_HIGHEST_POWER = 16
_LARGEST_MATRIX = 2**22
"""Elements of an interpolation matrix; larger ones take longer to multiply than the copies to the CPU."""
_EXACT_IN_FLOAT = 2**11  # FP16 holds every integer up to here


def compress(b: Builder) -> list[ir.Value | None]:
    """Gather where the condition is true; a condition shorter than the axis selects nothing behind its end."""
    x, axis = b.need(0), b.attr("axis")
    if axis is None:
        x, axis = b.op("Reshape", x, b.ints(-1)), 0
    return [b.op("Gather", x, b.op("Squeeze", b.op("NonZero", b.need(1)), b.ints(0)), axis=axis)]


def dropout(b: Builder) -> list[ir.Value | None]:
    """The input as it is, outside of training."""
    training = b.input(2)
    mode = None if training is None else b.values.constant(training)
    if b.asked(1) or (training is not None and (mode is None or mode.any())):
        raise CannotLower("it may train, or its mask is read")
    return [b.op("Identity", b.need(0))]


def mod(b: Builder) -> list[ir.Value | None]:
    """Integers: a - (a / b) * b, where the quotient is cut; without fmod the rest has the divisor's sign."""
    x, y = b.need(0), b.need(1)
    dtype = b.need_dtype(x)
    if dtype not in (T.INT64, T.UINT64):
        raise CannotLower("its type has no exact quotient")
    rest = b.op("Sub", x, b.op("Mul", b.op("Div", x, y), y))
    if dtype in _UNSIGNED or b.attr("fmod", 0):
        return [rest]
    zero = b.like(0, x)
    other_sign = b.op("Less", b.op("Mul", b.op("Sign", rest), b.op("Sign", y)), zero)
    return [b.op("Where", other_sign, b.op("Add", rest, y), rest)]


def one_hot(b: Builder) -> list[ir.Value | None]:
    """Indices and depth of other types as int64, which is what the operator makes of them."""
    indices, depth = (b.cast(b.need(i), T.INT64) for i in (0, 1))
    if (indices, depth) == (b.input(0), b.input(1)):
        raise CannotLower("its indices are integers already")
    return [b.op("OneHot", indices, depth, b.need(2), axis=b.attr("axis", -1))]


def power(b: Builder) -> list[ir.Value | None]:
    """Integers to a small constant power: products. Floats to an integer constant: to the same number as a float."""
    x, exponent = b.need(0), b.need(1)
    constant = b.need_constant(exponent, "exponent")
    if b.need_dtype(x) in _FLOATS:
        if exponent is b.cast(exponent, b.need_dtype(x)) or np.abs(constant.astype(np.float64)).max() > _EXACT_IN_FLOAT:
            raise CannotLower("its exponent is no small integer")
        return [b.op("Pow", x, b.like(constant, x))]
    number = float(constant.reshape(-1)[0]) if constant.size == 1 else -1.0
    if constant.ndim > 0 or not number.is_integer() or not 1 <= number <= _HIGHEST_POWER:
        raise CannotLower("its exponent is no small positive integer")
    result = x
    for digit in f"{int(number):b}"[1:]:
        result = b.op("Mul", result, result)
        if digit == "1":
            result = b.op("Mul", result, x)
    return [result if result is not x else b.op("Identity", x)]


def resize(b: Builder) -> list[ir.Value | None]:
    """Cubic interpolation: a product with a constant matrix along each axis."""
    if b.attr("mode", "nearest") != "cubic":
        raise CannotLower("only cubic interpolation is written as a product")
    shape, out = (b.values.static_shape(v) for v in (b.need(0), b.node.outputs[0]))
    if shape is None or out is None or max(m * n for m, n in zip(shape, out, strict=True)) > _LARGEST_MATRIX:
        raise CannotLower("its sizes are not known, or its matrices too large")
    return by_matrices(b)


EQUAL_FORMS: Mapping[str, Callable[[Builder], list[ir.Value | None]]] = {
    "Compress": compress,
    "Dropout": dropout,
    "Mod": mod,
    "OneHot": one_hot,
    "Pow": power,
    "Resize": resize,
    **ONE_STEP,
    **TWINS,
}
"""Operator, with its domain where that is not ai.onnx -> its form."""
