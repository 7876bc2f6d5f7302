"""The weights of a resize along one side, computed as in Pillow and OpenCV.

Both libraries resize one side after the other, each with weights that depend on the sizes alone. So a resize between
fixed sizes is a product with a constant matrix for each side.

Sources: Pillow, ``src/libImaging/Resample.c`` (precompute_coeffs, normalize_coeffs_8bpc) and ``Geometry.c``
(ImagingScaleAffine); OpenCV, ``modules/imgproc/src/resize.cpp`` (interpolateCubic, computeResizeAreaTab).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dmlprep.passes.framing.options import Mode
from dmlprep.portable.arrays import Array

_PILLOW = 1 << 22
"""Pillow's weights for bytes are whole numbers of 2^-22 (PRECISION_BITS)."""

_OPENCV = 1 << 11
"""OpenCV's weights for bytes are whole numbers of 2^-11 (INTER_RESIZE_COEF_BITS)."""

_CUBIC = -0.75
"""OpenCV's cubic parameter A; Pillow's is -0.5."""


@dataclass(frozen=True)
class Weights:
    """The weights of a resize are ``matrix / unit``; ``matrix`` is float64 [rows, source].

    If ``unit`` is not 1, the numbers in ``matrix`` are whole.
    """

    matrix: Array
    unit: int = 1


def nearest_indices(mode: Mode, source: int, target: int) -> Array:
    """The index of the source pixel for each of ``target`` pixels, int64, for a side of ``source`` pixels."""
    step = source / target
    if mode.startswith("pillow"):
        # Pillow adds step by step. The rounding of these sums decides where a pixel's middle is at an edge.
        at = np.add.accumulate(np.array([step * 0.5, *[step] * (target - 1)]))
    else:
        at = np.arange(target) * (1 / (target / source))  # as OpenCV divides: 3 may become 2.99...
    return np.minimum(np.floor(at).astype(np.int64), source - 1)


def resize_weights(mode: Mode, source: int, target: int, rows: range, *, whole: bool) -> Weights:
    """Return the weights [rows, source] that resize a side of ``source`` pixels to ``target`` pixels.

    Args:
        mode: any mode but the ``nearest`` ones.
        rows: the range of the ``target`` pixels that are needed.
        whole: whether the weights are rounded to whole numbers of a unit, as both libraries do for bytes.
    """
    library, name = mode.split("-")
    if library == "pillow":
        weights = _pillow(name, source, target, rows)
        return Weights(np.trunc(weights * _PILLOW + np.copysign(0.5, weights)), _PILLOW) if whole else Weights(weights)
    if name == "area":
        # Overlaps of pixels are multiples of 1 / target, so weights are multiples of 1 / source; a common divisor
        # cancels.
        unit = source // math.gcd(source, target)
        weights = _area(source, target, rows)
        return Weights(np.round(weights * unit), unit) if whole else Weights(weights)
    unit = _OPENCV if whole else 1
    return Weights(_taps(name, source, target, rows, unit), unit)


def _sinc(x: float) -> float:
    return 1.0 if x == 0 else math.sin(math.pi * x) / (math.pi * x)


def _bicubic(x: float) -> float:
    a = -0.5
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0


_FILTERS: dict[str, tuple[float, Callable[[float], float]]] = {
    "box": (0.5, lambda x: 1.0 if -0.5 < x <= 0.5 else 0.0),
    "bilinear": (1.0, lambda x: max(0.0, 1 - abs(x))),
    "hamming": (1.0, lambda x: _sinc(x) * (0.54 + 0.46 * math.cos(math.pi * x)) if abs(x) < 1 else 0.0),
    "bicubic": (2.0, lambda x: _bicubic(abs(x))),
    "lanczos": (3.0, lambda x: _sinc(x) * _sinc(x / 3) if -3 <= x < 3 else 0.0),
}
"""Map from a filter to its reach in pixels, and a function from a distance to its weight."""


def _pillow(name: str, source: int, target: int, rows: range) -> Array:
    reach, weigh = _FILTERS[name]
    scale = source / target
    wider = max(scale, 1.0)
    matrix = np.zeros((len(rows), source))
    for row, at in enumerate(rows):
        centre = (at + 0.5) * scale
        low = max(0, int(centre - reach * wider + 0.5))
        high = min(source, int(centre + reach * wider + 0.5))
        weights = np.array([weigh((x - centre + 0.5) / wider) for x in range(low, high)])
        matrix[row, low:high] = weights / weights.sum() if weights.sum() else weights
    return matrix


def _taps(name: str, source: int, target: int, rows: range, unit: int) -> Array:
    """OpenCV's linear (two pixels) and cubic (four pixels) weights, a matrix [rows, source].

    They are times ``unit`` and then rounded to whole numbers; a unit of 1 means not rounded. Pixels outside repeat the
    border.
    """
    matrix = np.zeros((len(rows), source))
    for row, at in enumerate(rows):
        place = (at + 0.5) * source / target - 0.5
        low = math.floor(place)
        part = place - low
        if name == "linear":
            taps, first = [1 - part, part], low
        else:
            w0 = ((_CUBIC * (part + 1) - 5 * _CUBIC) * (part + 1) + 8 * _CUBIC) * (part + 1) - 4 * _CUBIC
            w1, w2 = (((_CUBIC + 2) * at - (_CUBIC + 3)) * at * at + 1 for at in (part, 1 - part))
            taps, first = [w0, w1, w2, 1 - w0 - w1 - w2], low - 1
        for step, weight in enumerate(taps):
            matrix[row, min(max(first + step, 0), source - 1)] += round(weight * unit) if unit > 1 else weight
    return matrix


def _area(source: int, target: int, rows: range) -> Array:
    """OpenCV's weights for averages, a matrix [rows, source]; a source pixel counts by its share that is covered."""
    scale = source / target
    edges = np.arange(source)
    matrix = np.zeros((len(rows), source))
    for row, at in enumerate(rows):
        low, high = at * scale, min((at + 1) * scale, source)
        matrix[row] = np.clip(np.minimum(edges + 1, high) - np.maximum(edges, low), 0, 1) / (high - low)
    return matrix
