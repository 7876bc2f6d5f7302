"""Lower softmax operators, normalizations, Gelu and the layout of recurrent operators."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.passes.opset.build import Builder, CannotLower, Steps


def softmax_13(b: Builder) -> list[ir.Value | None] | None:
    """Transpose the axis to the end: before opset 13 the operator works on all dimensions from the axis on.

    If the axis is the last one already, the node stays.
    """
    x = b.need(0)
    rank = b.need_rank(x)
    axis = b.attr("axis", -1) % max(rank, 1)
    if axis == rank - 1:
        b.set_attr(axis=axis)
        return None
    order = [i for i in range(rank) if i != axis] + [axis]
    back = [order.index(i) for i in range(rank)]
    (y,) = b.again(b.op("Transpose", x, perm=order), version=11, axis=rank - 1)
    return [b.op("Transpose", y, perm=back)]


def batch_normalization_14(b: Builder) -> list[ir.Value | None] | None:
    """Write training_mode = 1 in arithmetic, with the mean and variance of the batch; otherwise drop the attribute."""
    if not b.attr("training_mode", 0):
        b.set_attr(training_mode=None)
        return None
    x, scale, bias, mean, variance = (b.need(i) for i in range(5))
    rank = b.need_rank(x)
    axes = b.ints(*[i for i in range(rank) if i != 1])
    shape = b.ints(*[-1 if i == 1 else 1 for i in range(rank)])
    current = b.op("ReduceMean", x, axes, keepdims=1)
    centred = b.op("Sub", x, current)
    spread = b.op("ReduceMean", b.op("Mul", centred, centred), axes, keepdims=1)
    root = b.op("Sqrt", b.op("Add", spread, b.like(b.attr("epsilon", 1e-5), spread)))
    scaled = b.op("Mul", b.op("Div", centred, root), b.op("Reshape", scale, shape))
    y = b.op("Add", scaled, b.op("Reshape", bias, shape))
    keep = float(b.attr("momentum", 0.9))

    def running(old: ir.Value, new: ir.Value) -> ir.Value:
        flat = b.op("Reshape", new, b.ints(-1))
        return b.op("Add", b.op("Mul", old, b.like(keep, old)), b.op("Mul", flat, b.like(1 - keep, flat)))

    statistics = enumerate(((mean, current), (variance, spread)), start=1)
    return [y, *(running(old, new) if b.asked(i) else None for i, (old, new) in statistics)]


def recurrent_14(b: Builder) -> list[ir.Value | None] | None:
    """Transpose X, initial states and outputs where layout is 1 (batch first); otherwise drop the attribute."""
    if not b.attr("layout", 0):
        b.set_attr(layout=None)
        return None
    inputs: list[ir.Value | None] = list(b.node.inputs)
    for i in (0, 5, 6):  # X [batch, time, in]; initial_h and initial_c [batch, directions, hidden]
        value = b.input(i)
        if value is not None:
            inputs[i] = b.op("Transpose", value, perm=[1, 0, 2])
    outputs = b.again(*inputs, version=13, layout=None)
    # Y [time, directions, batch, hidden] -> [batch, time, directions, hidden]; the states as above
    orders = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
    return [
        b.op("Transpose", y, perm=order) if b.asked(i) else None
        for i, (y, order) in enumerate(zip(outputs, orders, strict=False))
    ]


def gelu_20(b: Builder) -> list[ir.Value | None]:
    """Write x (erf(x / sqrt 2) + 1) / 2, which ONNX Runtime fuses into com.microsoft.Gelu; tanh: ONNX's function body.

    Raises:
        CannotLower: the node uses the tanh approximation. The caller then uses ONNX's function body.
    """
    if b.attr("approximate", "none") != "none":
        raise CannotLower("dmlprep uses ONNX's function body for the tanh form")
    x = b.need(0)
    erf = b.op("Erf", b.op("Div", x, b.like(np.sqrt(2.0), x)))
    return [b.op("Mul", b.op("Mul", x, b.op("Add", erf, b.like(1, x))), b.like(0.5, x))]


def rms_normalization_23(b: Builder) -> list[ir.Value | None]:
    """Write the arithmetic over the last dimension that ONNX Runtime fuses into SimplifiedLayerNormalization.

    Raises:
        CannotLower: the axis is another, or the scale's type is. The caller then uses ONNX's function body.
    """
    x, scale = b.need(0), b.need(1)
    rank = b.values.rank(x)
    axis, stash, dtype = b.attr("axis", -1), b.attr("stash_type", 1), b.need_dtype(x)
    if (axis != -1 and (rank is None or axis != rank - 1)) or b.values.dtype(scale) != dtype:
        raise CannotLower("dmlprep uses ONNX's function body for several dimensions")
    wide = b.cast(x, stash)
    mean = b.op("ReduceMean", b.op("Pow", wide, b.like(2, wide)), b.ints(-1), keepdims=1)
    root = b.op("Sqrt", b.op("Add", mean, b.like(b.attr("epsilon", 1e-5), wide)))
    return [b.op("Mul", b.cast(b.op("Div", wide, root), dtype), scale)]


STEPS: Steps = {
    ("Gelu", 20): gelu_20,
    ("RMSNormalization", 23): rms_normalization_23,
    **{(name, 13): softmax_13 for name in ("Softmax", "LogSoftmax", "Hardmax")},
    ("BatchNormalization", 14): batch_normalization_14,
    **{(name, 14): recurrent_14 for name in ("RNN", "GRU", "LSTM")},
}
