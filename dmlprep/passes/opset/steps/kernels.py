"""Interpolation along one axis as a matrix, by the definitions of ONNX's Resize."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dmlprep.passes.opset.refusal import CannotLower

__all__ = ["interpolation"]


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
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Weights [size, out]: each output element as a sum of input elements.

    Source: https://onnx.ai/onnx/operators/onnx__Resize.html, opset 19.
    """
    weights = np.zeros((size, out))
    for o in range(out):
        at = _source(o, size, out, scale, coordinates)
        if mode == "nearest":
            weights[min(max(_round(at, rounding), 0), size - 1), o] = 1
            continue
        shrink = min(scale, 1.0) if antialias else 1.0
        radius = (1 if mode == "linear" else 2) / shrink
        first, last = math.floor(at - radius) + 1, math.ceil(at + radius) - 1
        taps = range(first, max(last, first) + 1)
        drawn = np.array([_weight((i - at) * shrink, mode, cubic) for i in taps])
        inside = np.array([0 <= i < size for i in taps])
        if exclude_outside:
            drawn = np.where(inside, drawn, 0)
        drawn /= drawn.sum()
        for i, w in zip(taps, drawn, strict=True):
            weights[min(max(i, 0), size - 1), o] += w
    return weights


def _source(o: int, size: int, out: int, scale: float, coordinates: str) -> float:
    """The position in the input of output element ``o``."""
    if coordinates in ("half_pixel", "pytorch_half_pixel"):
        if coordinates == "pytorch_half_pixel" and out == 1:
            return 0.0
        return (o + 0.5) / scale - 0.5
    if coordinates == "half_pixel_symmetric":
        adjustment = out / (scale * size)
        return size / 2 * (1 - adjustment) + (o + 0.5) / scale - 0.5
    if coordinates == "asymmetric":
        return o / scale
    if coordinates == "align_corners":
        return o * (size - 1) / (out - 1) if out > 1 else 0.0
    raise CannotLower(f"coordinate_transformation_mode {coordinates}")


def _round(at: float, rounding: str) -> int:
    if rounding == "floor":
        return math.floor(at)
    if rounding == "ceil":
        return math.ceil(at)
    if rounding == "round_prefer_ceil":
        return math.floor(at + 0.5)
    return math.ceil(at - 0.5)


def _weight(distance: float, mode: str, a: float) -> float:
    d = abs(distance)
    if mode == "linear":
        return max(0.0, 1 - d)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return (((d - 5) * d + 8) * d - 4) * a if d < 2 else 0.0
