"""Lower Resize: half_pixel_symmetric of opset 19; axes, aspect ratios and antialiasing of opset 18."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from dmlprep.passes.opset.build import Builder, CannotLower, Steps, T

Floats = NDArray[np.float64]

_MOST_TAPS = 1 << 24  # elements that one output reads, and elements with weights in total


def resize_19(b: Builder) -> list[ir.Value | None] | None:
    """Write half_pixel_symmetric as a product with a constant matrix for each axis; leave nodes of other modes."""
    if b.attr("coordinate_transformation_mode", "half_pixel") != "half_pixel_symmetric":
        return None
    return by_matrices(b)


def resize_18(b: Builder) -> list[ir.Value | None] | None:
    """Extend roi, scales and sizes of some axes to all; write antialias and aspect ratios as a matrix for each axis."""
    if b.attr("mode", "nearest") == "nearest":
        b.set_attr(antialias=None)  # it has no meaning there
    if b.attr("antialias", 0) or b.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        return by_matrices(b)
    axes = b.attr("axes")
    b.set_attr(antialias=None, keep_aspect_ratio_policy=None, axes=None)
    if axes is None:
        return None
    x, roi, scales, sizes = (b.input(i) for i in range(4))
    assert x is not None
    rank = b.need_rank(x)
    listed = [a % rank for a in axes]
    count = len(listed)
    place = [listed.index(i) if i in listed else count + i for i in range(rank)]
    if scales is not None and b.values.static_shape(scales) != [0]:
        scales = b.op("Gather", b.op("Concat", scales, b.const(np.ones(rank, np.float32)), axis=0), b.ints(*place))
    if sizes is not None:
        sizes = b.op("Gather", b.op("Concat", sizes, b.op("Shape", x), axis=0), b.ints(*place))
    if roi is not None and b.values.static_shape(roi) != [0]:
        rest = b.like(np.array([0.0] * rank + [1.0] * rank), roi)
        both = [listed.index(i) if i in listed else 2 * count + i for i in range(rank)]
        both += [count + listed.index(i) if i in listed else 2 * count + rank + i for i in range(rank)]
        roi = b.op("Gather", b.op("Concat", roi, rest, axis=0), b.ints(*both))
    b.set_inputs([x, roi, scales, sizes])
    return None


def resize_13(b: Builder) -> list[ir.Value | None] | None:
    """Use empty tensors for missing roi and scales, which older versions require."""
    x, roi, scales, sizes = (b.input(i) for i in range(4))
    empty = b.const(np.zeros(0, np.float32))
    b.set_inputs([x, roi or empty, scales or empty, sizes])
    return None


def by_matrices(b: Builder) -> list[ir.Value | None]:
    """Write a Resize as a MatMul with a constant matrix [in, out] for each axis; return the replacement output.

    Raises:
        CannotLower: a size is unknown, the data are integers, or the mode is tf_crop_and_resize.
    """
    x = b.need(0)
    shape = b.values.static_shape(x)
    if shape is None:
        raise CannotLower(
            "its antialiasing, aspect ratio or symmetric coordinates need a fixed input shape", in_function=True
        )
    if b.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        raise CannotLower("it crops and resizes with antialiasing or a kept aspect ratio")
    axes = [a % len(shape) for a in b.attr("axes") or range(len(shape))]
    scales, outs = _sizes(b, [shape[a] for a in axes])
    dtype = b.need_dtype(x)
    work = dtype if dtype in (T.FLOAT, T.DOUBLE) else T.FLOAT
    y = b.cast(x, work)
    for axis, scale, out in zip(axes, scales, outs, strict=True):
        if out == shape[axis] and scale == 1:
            continue
        b.room((shape[axis], out), np.dtype(np.float64).itemsize, "an interpolation matrix")
        matrix = interpolation(
            shape[axis],
            out,
            scale,
            mode=b.attr("mode", "nearest"),
            coordinates=b.attr("coordinate_transformation_mode", "half_pixel"),
            cubic=b.attr("cubic_coeff_a", -0.75),
            exclude_outside=bool(b.attr("exclude_outside", 0)),
            antialias=bool(b.attr("antialias", 0)),
            rounding=b.attr("nearest_mode", "round_prefer_floor"),
        )
        last = [i for i in range(len(shape)) if i != axis] + [axis]
        moved = b.op("MatMul", b.transpose(y, last), b.typed(matrix, work))
        y = b.transpose(moved, [last.index(i) for i in range(len(shape))])
    if dtype not in (T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16):
        raise CannotLower("it interpolates integers")
    return [b.cast(y, dtype)]


def _sizes(b: Builder, sizes: list[int]) -> tuple[list[float], list[int]]:
    """The scale and the output size of each resized axis. ``sizes`` are the input sizes of these axes.

    Raises:
        CannotLower: scales and sizes are missing or not constant, or a scale is not positive.
    """
    scales_value, sizes_value = b.input(2), b.input(3)
    if sizes_value is None:
        if scales_value is None:
            raise CannotLower("it has neither scales nor sizes")
        scales = [float(s) for s in b.need_constant(scales_value, "its scales").reshape(-1)]
        if not all(0 < s < math.inf for s in scales):
            raise CannotLower("its scales are not positive")
        return scales, [math.floor(s * size) for s, size in zip(scales, sizes, strict=True)]
    wanted = b.whole_numbers(b.need_constant(sizes_value, "its sizes"), "its sizes")
    scales = [w / size for w, size in zip(wanted, sizes, strict=True)]
    policy = b.attr("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return scales, wanted
    one = min(scales) if policy == "not_larger" else max(scales)
    return [one] * len(sizes), [math.floor(one * size + 0.5) for size in sizes]


def interpolation(
    size: int,
    out: int,
    scale: float,
    *,
    mode: str,
    coordinates: str,
    cubic: float,
    exclude_outside: bool,
    antialias: bool,
    rounding: str,
) -> Floats:
    """The matrix [size, out] of Resize along one axis: output element j is the sum of input elements i times [i, j].

    ``size`` and ``out`` are numbers of input and output elements. The other arguments are Resize's attributes.

    Source: https://onnx.ai/onnx/operators/onnx__Resize.html, opset 19.

    Raises:
        CannotLower: antialiasing shrinks too far, or the coordinates are unknown.
    """
    weights = np.zeros((size, out))
    at = _source(np.arange(out, dtype=np.float64), size, out, scale, coordinates)
    if mode == "nearest":
        weights[np.clip(_round(at, rounding), 0, size - 1).astype(np.int64), np.arange(out)] = 1
        return weights
    shrink = min(scale, 1.0) if antialias else 1.0
    radius = (1 if mode == "linear" else 2) / shrink
    taps = np.arange(2 * math.ceil(radius) + 1) if radius < _MOST_TAPS / 4 else np.arange(_MOST_TAPS)
    if len(taps) >= _MOST_TAPS:
        raise CannotLower("it shrinks too far for a matrix")
    step = max(1, _MOST_TAPS // 16 // len(taps))
    for start in range(0, out, step):
        here = at[start : start + step, None]
        first = np.floor(here - radius) + 1
        tap = first + taps
        drawn = _weight((tap - here) * shrink, mode, cubic)
        unread = tap > np.maximum(np.ceil(here + radius) - 1, first)
        if exclude_outside:
            unread |= (tap < 0) | (tap >= size)
        drawn[unread] = 0
        drawn /= drawn.sum(axis=1, keepdims=True)
        column = np.arange(start, start + len(here))[:, None]
        np.add.at(weights, (np.clip(tap, 0, size - 1).astype(np.int64), column), drawn)
    return weights


def _source(o: Floats, size: int, out: int, scale: float, coordinates: str) -> Floats:
    """The fractional positions in the input that belong to the output positions ``o``."""
    if coordinates == "pytorch_half_pixel" and out == 1:
        return np.zeros(1)
    if coordinates in ("half_pixel", "pytorch_half_pixel"):
        return (o + 0.5) / scale - 0.5
    if coordinates == "half_pixel_symmetric":
        return size / 2 * (1 - out / (scale * size)) + (o + 0.5) / scale - 0.5
    if coordinates == "asymmetric":
        return o / scale
    if coordinates == "align_corners":
        return o * (size - 1) / (out - 1) if out > 1 else np.zeros(out)
    raise CannotLower(f"coordinate_transformation_mode {coordinates}")


def _round(at: Floats, rounding: str) -> Floats:
    by_half = 0.0 if rounding in ("floor", "ceil") else 0.5
    return np.floor(at + by_half) if rounding in ("floor", "round_prefer_ceil") else np.ceil(at - by_half)


def _weight(distance: Floats, mode: str, a: float) -> Floats:
    d = np.abs(distance)
    if mode == "linear":
        return np.asarray(np.maximum(0.0, 1 - d))
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = (((d - 5) * d + 8) * d - 4) * a
    return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0.0)))


STEPS: Steps = {("Resize", 19): resize_19, ("Resize", 18): resize_18, ("Resize", 13): resize_13}
