"""Rewrite nodes for which DirectML has no kernel at any opset in operators that it has, with the same result.

Each function writes the new nodes, and returns replacements for the node's outputs. Only nodes that are requested by
name (``lower(rewrite=...)``) are rewritten. Files that ONNX Runtime optimized or quantized have the operators of
com.microsoft; exports of scikit-learn have those of ai.onnx.ml. Sources: ONNX Runtime 1.30, docs/ContribOperators.md;
onnx, docs/Operators-ml.md; the CPU provider's results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from dmlprep.passes.opset.build import Builder, CannotLower, T
from dmlprep.passes.opset.steps.recurrent import ONE_STEP
from dmlprep.passes.opset.steps.resizing import by_matrices

_UNSIGNED = {T.UINT8, T.UINT16, T.UINT32, T.UINT64}
_FLOATS = {T.FLOAT, T.FLOAT16}
_HIGHEST_POWER = 16
_LARGEST_MATRIX = 2**22
"""Limit on the elements of an interpolation matrix. A product with a larger one is slower than copies to the CPU."""
_EXACT_IN_FLOAT = 2**11  # FP16 is exact for integers up to here

_ACTIVATIONS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": (("alpha", 0.01),),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
}
"""Map from an activation of fused operators to its attributes in order, with their defaults."""

_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _activated(b: Builder, y: ir.Value, parameters: list[float] | None) -> ir.Value:
    """Write the activation that the fused node names, on ``y``, and return its output.

    ``parameters``: the activation's attributes in order; ``None`` for ONNX's defaults.

    Raises:
        CannotLower: the activation is unknown, or has another number of attributes.
    """
    kind = b.attr("activation", "")
    if kind == "Clip":
        low, high = parameters if parameters and len(parameters) == 2 else (-np.inf, np.inf)
        return b.op("Clip", y, b.like(low, y), b.like(high, y))
    if kind not in _ACTIVATIONS:
        raise CannotLower(f"dmlprep does not know its activation {kind!r}")
    names = _ACTIVATIONS[kind]
    if parameters is not None and len(parameters) != len(names):
        raise CannotLower(f"its activation {kind!r} has {len(parameters)} parameters instead of {len(names)}")
    numbers = [default for _, default in names] if parameters is None else parameters
    return b.op(kind, y, **{name: float(number) for (name, _), number in zip(names, numbers, strict=True)})


def fused_conv(b: Builder) -> list[ir.Value | None]:
    """Write com.microsoft.FusedConv as Conv, the addition of its fourth input (if there is one), and its activation."""
    y = b.op("Conv", b.need(0), b.need(1), b.input(2), **{name: b.attr(name) for name in _CONV})
    added = b.input(3)
    return [_activated(b, y if added is None else b.op("Add", y, added), b.attr("activation_params"))]


def fused_gemm(b: Builder) -> list[ir.Value | None]:
    """Write com.microsoft.FusedGemm as Gemm and its activation."""
    names = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
    y = b.op("Gemm", b.need(0), b.need(1), b.input(2), **{name: b.attr(name, value) for name, value in names.items()})
    kind = b.attr("activation", "")
    parameters = [b.attr(f"activation_{name}", default) for name, default in _ACTIVATIONS.get(kind, ())]
    return [_activated(b, y, parameters if kind in _ACTIVATIONS else None)]


def transpose_matmul(b: Builder) -> list[ir.Value | None]:
    """Write com.microsoft.TransposeMatMul under its new name, com.microsoft.FusedMatMul."""
    names: dict[str, Any] = {"transA": 0, "transB": 0, "alpha": 1.0}
    attributes = {name: b.attr(name, default) for name, default in names.items()}
    return [b.ops("FusedMatMul", b.need(0), b.need(1), domain="com.microsoft", **attributes)[0]]


def expand_dims(b: Builder) -> list[ir.Value | None]:
    """Write com.microsoft.ExpandDims, whose axis must be constant, as Unsqueeze.

    Raises:
        CannotLower: the axis is not constant.
    """
    return [b.op("Unsqueeze", b.need(0), b.ints(*b.whole_numbers(b.need_constant(b.need(1), "axis"), "axes")))]


def pad(b: Builder) -> list[ir.Value | None]:
    """Write com.microsoft.Pad as Pad of ai.onnx: pads of shape [1, n] are flattened, and the value becomes a scalar."""
    pads = b.op("Reshape", b.need(1), b.ints(-1))
    value = b.input(2)
    value = None if value is None else b.op("Reshape", value, b.const(np.array([], np.int64)))
    return [b.op("Pad", b.need(0), pads, value, mode=b.attr("mode", "constant"))]


def same(*names: str) -> Callable[[Builder], list[ir.Value | None]]:
    """Return a function that writes the ai.onnx operator of the same name, with only the attributes ``names``."""

    def write(b: Builder) -> list[ir.Value | None]:
        return [b.op(str(b.node.op_type), *b.node.inputs, **{name: b.attr(name) for name in names})]

    return write


def c_dist(b: Builder) -> list[ir.Value | None]:
    """Write com.microsoft.CDist: the distance of each row of one matrix to each row of the other.

    A distance is the sum of squared differences, or its root, as the attribute ``metric`` says.
    """
    apart = b.op("Sub", b.op("Unsqueeze", b.need(0), b.ints(1)), b.op("Unsqueeze", b.need(1), b.ints(0)))
    total = b.op("ReduceSum", b.op("Mul", apart, apart), b.ints(-1), keepdims=0)
    return [total if b.attr("metric", "sqeuclidean") == "sqeuclidean" else b.op("Sqrt", total)]


def _dequantized(b: Builder, at: int) -> ir.Value:
    """Dequantize the input at index ``at`` with the scale and the zero point that are the next two inputs.

    Raises:
        CannotLower: the scale is not a scalar.
    """
    scale, zero = b.need(at + 1), b.input(at + 2)
    if b.need_rank(scale):
        raise CannotLower("it has a scale for each row or column, and not one for the whole tensor")
    return b.op("DequantizeLinear", b.need(at), scale, zero)


def q_linear_mul(b: Builder) -> list[ir.Value | None]:
    """Write com.microsoft.QLinearMul: dequantize both inputs, multiply, quantize."""
    return [b.op("QuantizeLinear", b.op("Mul", _dequantized(b, 0), _dequantized(b, 3)), b.need(6), b.input(7))]


def q_linear_leaky_relu(b: Builder) -> list[ir.Value | None]:
    """Write com.microsoft.QLinearLeakyRelu: dequantize, LeakyRelu, quantize."""
    y = b.op("LeakyRelu", _dequantized(b, 0), alpha=float(b.attr("alpha", 0.01)))
    return [b.op("QuantizeLinear", y, b.need(3), b.input(4))]


def dynamic_quantize_lstm(b: Builder) -> list[ir.Value | None]:
    """Write com.microsoft.DynamicQuantizeLSTM as an LSTM with dequantized weights, on data that is not quantized.

    The weights have one scale for each direction, or for each direction and column.
    """

    def weights(at: int, scale_at: int) -> ir.Value:
        w, *by = (b.cast(b.need(i), T.FLOAT) for i in (at, scale_at, scale_at + 1))
        scale, zero = (b.op("Unsqueeze", v, b.ints(*([1] if b.need_rank(v) == 2 else [1, 2]))) for v in by)
        return b.transpose(b.op("Mul", b.op("Sub", w, zero), scale), (0, 2, 1))

    inputs = [b.need(0), weights(1, 8), weights(2, 10), *map(b.input, range(3, 8))]
    names = ("activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget")
    attributes = {name: b.attr(name) for name in names}
    return [*b.ops("LSTM", *inputs, outputs=len(b.node.outputs), version=14, **attributes)]


def _as_float(b: Builder) -> ir.Value:
    return b.cast(b.need(0), T.FLOAT)


def scaler(b: Builder) -> list[ir.Value | None]:
    """Write ai.onnx.ml.Scaler as (x - offset) * scale; offset and scale are one number, or one for each feature."""
    x = _as_float(b)
    for op, name in (("Sub", "offset"), ("Mul", "scale")):
        if numbers := b.attr(name):
            x = b.op(op, x, b.like(numbers, x))
    return [x if x is not b.need(0) else b.op("Identity", x)]


def normalizer(b: Builder) -> list[ir.Value | None]:
    """Write ai.onnx.ml.Normalizer: divide each row by its norm (L2, L1 or maximum), unless the norm is 0."""
    x, kind = _as_float(b), b.attr("norm", "MAX")
    if kind == "L2":
        norm = b.op("ReduceL2", x, b.ints(-1), keepdims=1)
    elif kind == "L1":
        norm = b.op("ReduceSum", b.op("Abs", x), b.ints(-1), keepdims=1)
    else:
        norm = b.op("ReduceMax", x, b.ints(-1), keepdims=1)
    return [b.op("Div", x, b.op("Where", b.op("Equal", norm, b.like(0, x)), b.like(1, x), norm))]


def binarizer(b: Builder) -> list[ir.Value | None]:
    """Write ai.onnx.ml.Binarizer: 1 where the input is above the threshold, otherwise 0."""
    x = b.need(0)
    return [b.cast(b.op("Greater", x, b.like(b.attr("threshold", 0.0), x)), b.need_dtype(x))]


def imputer(b: Builder) -> list[ir.Value | None]:
    """Write ai.onnx.ml.Imputer: replace one value (or NaN) by a constant, which may differ for each feature.

    Raises:
        CannotLower: the node has no imputed value.
    """
    x = b.need(0)
    whole = b.need_dtype(x) == T.INT64
    new = b.attr("imputed_value_int64s" if whole else "imputed_value_floats")
    old = b.attr("replaced_value_int64" if whole else "replaced_value_float", 0)
    if not new:
        raise CannotLower("it has no imputed value")
    is_old = b.op("IsNaN", x) if np.isnan(old) else b.op("Equal", x, b.like(old, x))
    return [b.op("Where", is_old, b.like(new if len(new) > 1 else new[0], x), x)]


def linear_regressor(b: Builder) -> list[ir.Value | None]:
    """Write ai.onnx.ml.LinearRegressor as MatMul with the coefficients, plus the intercepts.

    Raises:
        CannotLower: the node has a post_transform, or coefficients that do not fit.
    """
    x, targets = _as_float(b), int(b.attr("targets", 1))
    if b.attr("post_transform", "NONE") != "NONE":
        raise CannotLower("it has a post_transform")
    weights = np.array(b.attr("coefficients") or [], np.float32)
    if not weights.size or weights.size % targets:
        raise CannotLower("its coefficients do not fit its targets")
    y = b.op("MatMul", x, b.const(np.ascontiguousarray(weights.reshape(targets, -1).T)))
    intercepts = b.attr("intercepts")
    return [b.op("Add", y, b.like(intercepts, y)) if intercepts else y]


def compress(b: Builder) -> list[ir.Value | None]:
    """Write Compress as Gather at the indices where the condition is true; without an axis, on the flattened input."""
    x, axis = b.need(0), b.attr("axis")
    if axis is None:
        x, axis = b.op("Reshape", x, b.ints(-1)), 0
    return [b.op("Gather", x, b.op("Squeeze", b.op("NonZero", b.need(1)), b.ints(0)), axis=axis)]


def dropout(b: Builder) -> list[ir.Value | None]:
    """Write Dropout as Identity, because it does nothing outside of training.

    Raises:
        CannotLower: the node might be in training mode, or its mask is used.
    """
    training = b.input(2)
    mode = None if training is None else b.values.constant(training)
    if b.asked(1) or (training is not None and (mode is None or mode.any())):
        raise CannotLower("it might be in training mode, or its mask is used")
    return [b.op("Identity", b.need(0))]


def mod(b: Builder) -> list[ir.Value | None]:
    """Write Mod of 64-bit integers as a - (a / b) * b with a truncated quotient.

    Without the attribute ``fmod``, b is added where the remainder and b differ in sign.

    Raises:
        CannotLower: the element type is neither int64 nor uint64.
    """
    x, y = b.need(0), b.need(1)
    dtype = b.need_dtype(x)
    if dtype not in (T.INT64, T.UINT64):
        raise CannotLower("only int64 and uint64 have an exact form")
    rest = b.op("Sub", x, b.op("Mul", b.op("Div", x, y), y))
    if dtype in _UNSIGNED or b.attr("fmod", 0):
        return [rest]
    zero = b.like(0, x)
    other_sign = b.op("Less", b.op("Mul", b.op("Sign", rest), b.op("Sign", y)), zero)
    return [b.op("Where", other_sign, b.op("Add", rest, y), rest)]


def one_hot(b: Builder) -> list[ir.Value | None]:
    """Write OneHot with its indices and depth cast to int64.

    Raises:
        CannotLower: both are int64 already.
    """
    indices, depth = (b.cast(b.need(i), T.INT64) for i in (0, 1))
    if (indices, depth) == (b.input(0), b.input(1)):
        raise CannotLower("its indices and depth are int64 already, so no cast helps")
    return [b.op("OneHot", indices, depth, b.need(2), axis=b.attr("axis", -1))]


def power(b: Builder) -> list[ir.Value | None]:
    """Write Pow with a constant exponent in a form that DirectML has.

    For FP16 or FP32 numbers, exponents of another type and of at most 2048 become a constant of the base's type. Other
    numbers to a whole scalar power from 1 to 16 become products.

    Raises:
        CannotLower: the exponent or the types are others.
    """
    x, exponent = b.need(0), b.need(1)
    constant = b.need_constant(exponent, "exponent")
    if b.need_dtype(x) in _FLOATS:
        if exponent is b.cast(exponent, b.need_dtype(x)) or np.abs(constant.astype(np.float64)).max() > _EXACT_IN_FLOAT:
            raise CannotLower("its exponent is not a small integer")
        return [b.op("Pow", x, b.like(constant, x))]
    number = float(constant.reshape(-1)[0]) if constant.size == 1 else -1.0
    if constant.ndim > 0 or not number.is_integer() or not 1 <= number <= _HIGHEST_POWER:
        raise CannotLower("its exponent is not a small positive integer")
    result = x
    for digit in f"{int(number):b}"[1:]:
        result = b.op("Mul", result, result)
        if digit == "1":
            result = b.op("Mul", result, x)
    return [result if result is not x else b.op("Identity", x)]


def resize(b: Builder) -> list[ir.Value | None]:
    """Write a cubic Resize as a product with a constant matrix along each axis.

    Raises:
        CannotLower: the mode is not cubic, sizes are unknown, or a matrix would be too large.
    """
    if b.attr("mode", "nearest") != "cubic":
        raise CannotLower("only cubic interpolation is written as a product")
    shape, out = (b.values.static_shape(v) for v in (b.need(0), b.node.outputs[0]))
    if shape is None or out is None or max(m * n for m, n in zip(shape, out, strict=True)) > _LARGEST_MATRIX:
        raise CannotLower("its sizes are unknown, or its interpolation matrices would be too large")
    return by_matrices(b)


EQUAL_FORMS: Mapping[str, Callable[[Builder], list[ir.Value | None]]] = {
    "Compress": compress,
    "Dropout": dropout,
    "Mod": mod,
    "OneHot": one_hot,
    "Pow": power,
    "Resize": resize,
    **ONE_STEP,
    "com.microsoft::CDist": c_dist,
    "com.microsoft::DynamicQuantizeLSTM": dynamic_quantize_lstm,
    "com.microsoft::ExpandDims": expand_dims,
    "com.microsoft::FusedConv": fused_conv,
    "com.microsoft::FusedGemm": fused_gemm,
    "com.microsoft::GatherND": same(),
    "com.microsoft::GridSample": same("mode", "padding_mode", "align_corners"),
    "com.microsoft::Pad": pad,
    "com.microsoft::QLinearLeakyRelu": q_linear_leaky_relu,
    "com.microsoft::QLinearMul": q_linear_mul,
    "com.microsoft::Range": same(),
    "com.microsoft::SampleOp": lambda b: [b.op("Identity", b.need(0))],
    "com.microsoft::TransposeMatMul": transpose_matmul,
    "com.microsoft::Trilu": same("upper"),
    "ai.onnx.ml::Binarizer": binarizer,
    "ai.onnx.ml::Imputer": imputer,
    "ai.onnx.ml::LinearRegressor": linear_regressor,
    "ai.onnx.ml::Normalizer": normalizer,
    "ai.onnx.ml::Scaler": scaler,
}
"""Map from an operator ("domain::operator" outside of ai.onnx) to the function that writes it in other operators."""
