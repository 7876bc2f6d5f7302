"""Interpolation along one axis as a matrix, by the definitions of ONNX's Resize."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dmlprep.passes.opset.refusal import CannotLower

Floats = NDArray[np.float64]

_MOST_TAPS = 1 << 24  # elements that one output reads; as many are weighed at once, in all


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
    """Weights [size, out]: each output element as a sum of input elements.

    Source: https://onnx.ai/onnx/operators/onnx__Resize.html, opset 19.
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
    """The position in the input of output elements ``o``."""
    if coordinates in ("half_pixel", "pytorch_half_pixel"):
        if coordinates == "pytorch_half_pixel" and out == 1:
            return np.zeros(1)
        return (o + 0.5) / scale - 0.5
    if coordinates == "half_pixel_symmetric":
        adjustment = out / (scale * size)
        return size / 2 * (1 - adjustment) + (o + 0.5) / scale - 0.5
    if coordinates == "asymmetric":
        return o / scale
    if coordinates == "align_corners":
        return o * (size - 1) / (out - 1) if out > 1 else np.zeros(out)
    raise CannotLower(f"coordinate_transformation_mode {coordinates}")


def _round(at: Floats, rounding: str) -> Floats:
    if rounding == "floor":
        return np.floor(at)
    if rounding == "ceil":
        return np.ceil(at)
    if rounding == "round_prefer_ceil":
        return np.floor(at + 0.5)
    return np.ceil(at - 0.5)


def _weight(distance: Floats, mode: str, a: float) -> Floats:
    d = np.abs(distance)
    if mode == "linear":
        return np.asarray(np.maximum(0.0, 1 - d))
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = (((d - 5) * d + 8) * d - 4) * a
    return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0.0)))
