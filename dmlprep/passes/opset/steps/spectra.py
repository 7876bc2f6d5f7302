"""Lower Fourier transforms: the axis of DFT at opset 20, and DFT and STFT as products with cosines and sines."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from dmlprep.passes.opset.build import Builder, CannotLower, Steps, T

Matrix = NDArray[np.float64]


def dft_20(b: Builder) -> list[ir.Value | None] | None:
    """Move the axis to the attribute. For a run-time axis, deduce it from the shapes, or compute every axis and select.

    Raises:
        CannotLower: the rank is unknown, or shapes or attributes do not allow an axis that is computed at run time.
    """
    x, axis = b.need(0), b.input(2)
    rank = b.need_rank(x)
    chosen: int | None = rank - 2
    if axis is not None:
        known = b.values.constant(axis)
        chosen = int(known.reshape(-1)[0]) % rank if known is not None else _moved_axis(b, x, axis, rank)
        if chosen is None:
            return [_any_axis(b, x, axis, rank)]
    b.set_attr(axis=chosen)
    b.set_inputs([x, b.input(1)])
    return None


def _moved_axis(b: Builder, x: ir.Value, axis: ir.Value, rank: int) -> int | None:
    """The axis that the transform changes in size; ``None`` if no size changes, so that all axes must be computed.

    Raises:
        CannotLower: the shapes are unknown, or the node has a length or is one-sided and no size changes.
    """
    before, after = b.values.static_shape(x), b.values.static_shape(b.node.outputs[0])
    if before is not None and after is not None and len(before) == len(after):
        moved = [i for i in range(rank - 1) if before[i] != after[i]]
        if len(moved) == 1:
            return moved[0]
        if not moved and not b.attr("onesided", 0) and b.input(1) is None:
            return None
    raise CannotLower(f"its axis ({axis.name!r}) is not a constant", in_function=True)


def _any_axis(b: Builder, x: ir.Value, axis: ir.Value, rank: int) -> ir.Value | None:
    wanted = b.from_start(b.op("Reshape", b.cast(axis, T.INT64), b.ints(-1)), rank)
    result: ir.Value | None = None
    for candidate in range(rank - 1):
        (tried,) = b.again(x, version=17, axis=candidate)
        here = b.op("Equal", wanted, b.scalar(candidate))
        result = tried if result is None else b.op("Where", here, tried, result)
    return result


def dft_17(b: Builder) -> list[ir.Value | None]:
    """Write products with constant matrices of cosines and sines; the size of the axis must be known.

    Raises:
        CannotLower: the size of the axis or of the last dimension is unknown, or the length is not constant.
    """
    x, length = b.need(0), b.input(1)
    shape = b.values.dims(x)
    if shape is None:
        raise CannotLower("the rank of its input is unknown: pin the free dimensions of the model", in_function=True)
    axis = b.attr("axis", 1) % len(shape)
    size = shape[axis]
    if not isinstance(size, int):
        raise CannotLower("the size of its axis is unknown: pin the free dimensions of the model", in_function=True)
    inverse, onesided = bool(b.attr("inverse", 0)), bool(b.attr("onesided", 0))
    points = 2 * (size - 1) if inverse and onesided else size
    if length is not None:
        points = int(b.need_constant(length, "its length").reshape(-1)[0])
    return [transform(b, x, axis, size, points, inverse=inverse, onesided=onesided)]


def transform(b: Builder, x: ir.Value, axis: int, size: int, points: int, *, inverse: bool, onesided: bool) -> ir.Value:
    """Write the DFT of ``points`` points along ``axis`` of x [..., size, ..., 1 (real) or 2 (complex)].

    Returns the result [..., bins, ..., 2]; the last dimension is 1 if it is inverse and onesided.

    Raises:
        CannotLower: the last size of ``x`` is unknown.
    """
    rank = b.need_rank(x)
    parts = (b.values.dims(x) or [None])[-1]
    if parts not in (1, 2):
        raise CannotLower(
            "the last axis of its input is unknown, so it might be real or complex: "
            "pin the free dimensions of the model",
            in_function=True,
        )
    dtype = b.need_dtype(x)
    used = min(size, points // 2 + 1 if inverse and onesided else points)
    if used < size:
        x = b.op("Slice", x, b.ints(0), b.ints(used), b.ints(axis))
    last = [i for i in range(rank - 1) if i != axis] + [axis]
    real = b.transpose(b.op("Gather", x, b.scalar(0), axis=-1), last)
    imaginary = b.transpose(b.op("Gather", x, b.scalar(1), axis=-1), last) if parts == 2 else None
    bins = points if inverse or not onesided else points // 2 + 1
    b.room((2, used, bins), np.dtype(np.float64).itemsize, "cosines and sines")
    angle = 2 * np.pi * np.outer(np.arange(used), np.arange(bins)) / points
    cos: Matrix = np.cos(angle)
    sin: Matrix = np.sin(angle) * (1 if inverse else -1)
    if inverse:
        weight = np.full((used, 1), 1 / points)
        if onesided:  # the missing half mirrors this half
            weight[1 : used if points % 2 else min(used, points // 2)] *= 2
        cos, sin = cos * weight, sin * weight
    out_real = b.op("MatMul", real, b.typed(cos, dtype))
    out_imaginary = b.op("MatMul", real, b.typed(sin, dtype))
    if imaginary is not None:
        out_real = b.op("Sub", out_real, b.op("MatMul", imaginary, b.typed(sin, dtype)))
        out_imaginary = b.op("Add", out_imaginary, b.op("MatMul", imaginary, b.typed(cos, dtype)))
    back = [last.index(i) for i in range(rank - 1)]
    pieces = [out_real] if inverse and onesided else [out_real, out_imaginary]
    pieces = [b.op("Unsqueeze", b.transpose(p, back), b.ints(-1)) for p in pieces]
    return pieces[0] if len(pieces) == 1 else b.op("Concat", *pieces, axis=-1)


def stft_17(b: Builder) -> list[ir.Value | None]:
    """Gather the frames, multiply them by the window, and write the DFT of each; sizes and step must be known.

    Raises:
        CannotLower: the length of the signal, frame or window is unknown, or the step is not constant.
    """
    signal, step, window, length = b.need(0), b.need(1), b.input(2), b.input(3)
    shape = b.values.dims(signal)
    samples = shape[1] if shape is not None else None
    if not isinstance(samples, int):
        raise CannotLower("the length of its signal is unknown: pin the free dimensions of the model", in_function=True)
    stride = int(b.need_constant(step, "its frame step").reshape(-1)[0])
    window_shape = b.values.static_shape(window)
    if length is not None:
        points = int(b.need_constant(length, "its frame length").reshape(-1)[0])
    elif window is not None:
        if window_shape is None:
            raise CannotLower(
                "the length of its window is unknown: pin the free dimensions of the model", in_function=True
            )
        points = window_shape[0]
    else:
        points = samples
    frames = (samples - points) // stride + 1
    b.room((frames, points), np.dtype(np.int64).itemsize, "the places of its frames")
    index = np.arange(frames)[:, None] * stride + np.arange(points)[None, :]
    framed = b.op("Gather", signal, b.const(index.astype(np.int64)), axis=1)  # [batch, frames, points, 1 or 2]
    if window is not None:
        framed = b.op("Mul", framed, b.op("Reshape", window, b.ints(1, 1, -1, 1)))
    onesided = bool(b.attr("onesided", 1)) and (shape or [None])[-1] == 1
    return [transform(b, framed, 2, points, points, inverse=False, onesided=onesided)]


STEPS: Steps = {("DFT", 20): dft_20, ("DFT", 17): dft_17, ("STFT", 17): stft_17}
