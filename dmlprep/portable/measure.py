"""How far one output is from its reference, element by element, in memory that does not grow with the output."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .output_metrics import OutputMetrics

if TYPE_CHECKING:
    from .arrays import Array

_CHUNK = 1 << 20
"""Elements looked at together: 8 MiB in float64, a handful of such arrays at a time."""

FLOOR = 1e-6
"""Least max|reference| that differences are divided by: an output that small is zero but for noise."""

MASK = -1e30
"""Values at or below this are masks, put where nothing may be chosen. They do not scale the differences of the others,
or one -3.4e38 among logits would let everything pass."""

NOISE_FACTOR = 4.0
"""A candidate may be off by as many times the original's own noise: it is another order of the same sums, as noise is,
and the largest of millions of elements."""

ORDINARY_NOISE = 1e-3
"""Noise up to this is that of FP32 in a sensitive model; beyond it (and beyond the tolerance) the inputs prove nothing.
Measured on trained models with real inputs (``tests/benchmarks/trained.py``): 1e-6 to 6e-5, and 0.0025 to 0.11 where
the output is all but zero."""


@dataclass(frozen=True)
class Tolerance:
    """How far outputs may be from the reference.

    Attributes:
        max_rel: bound of max|d| / max|reference|, per output.
        cosine: least cosine of output and reference, flattened.
        share_equal: least share of equal elements, for integer, boolean and string outputs.
        rows: least share of rows found again, for outputs that are sets of boxes.
        reason: where the numbers come from, in a line.
        overlap: of steep outputs (``steep.STEEP``), least overlap of maps, masks and rows; 1: every element counts.
        outside: of maps and logits, largest share of elements out of bounds.
        stray: of maps, how far an element may be from all around it; of rows, how much of one may move.
        thresholds: at which masks are made of maps; where a map is below all of them, at half of its largest value.
    """

    name: str
    max_rel: float
    cosine: float
    share_equal: float
    rows: float
    reason: str
    overlap: float = 1.0
    outside: float = 0.0
    stray: float = 0.0
    thresholds: tuple[float, ...] = (0.5,)

    def raised(self, noise: float | None) -> Tolerance:
        """This tolerance for an output that is no better than ``noise`` itself: nothing is asked for more.

        A bound of the user's own, and a bound of 0, stay as they are.
        """
        if not noise or self.max_rel == 0 or self.name.startswith("rel:"):
            return self
        most = max(2 * self.max_rel, NOISE_FACTOR * ORDINARY_NOISE)
        return replace(self, max_rel=max(self.max_rel, min(NOISE_FACTOR * noise, most)))

    def beyond_proof(self, noise: float | None) -> bool:
        """Whether an output differs so much from itself that nothing can be held against it."""
        return noise is not None and noise > max(self.max_rel, ORDINARY_NOISE)

    def __str__(self) -> str:
        return f"{self.name}: max|d|/max|ref| <= {self.max_rel:g}, cosine >= {self.cosine:g}"


def _pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    flat = [np.ascontiguousarray(a).reshape(-1) for a in arrays]
    for start in range(0, flat[0].size, _CHUNK):
        yield tuple(a[start : start + _CHUNK] for a in flat)


def _real(piece: Array) -> Array:
    """float64 of any element type; a complex number as its two parts."""
    if piece.dtype.kind == "c":
        return np.asarray(np.stack([piece.real, piece.imag], -1).reshape(-1), dtype=np.float64)
    return np.asarray(piece, dtype=np.float64)


def _is_float(array: Array) -> bool:
    # ml_dtypes (bfloat16, float8) have the kind "V" and numbers all the same.
    return array.dtype.kind in "fcV"


def tells_something(output: Array) -> bool:
    """Whether a candidate can be held against it: an output that is empty, or all NaN and infinite, equals anything
    that went wrong in the same way."""
    if not _is_float(output):
        return output.size > 0
    return any(bool(np.isfinite(_real(piece)).any()) for (piece,) in _pieces(output))


def unwound(reference: Array, candidate: Array, turn: float) -> Array:
    """Return the angles of ``candidate``, each moved by a whole turn where that is nearer to the reference."""
    if not turn or reference.shape != candidate.shape:
        return candidate
    with np.errstate(invalid="ignore"):
        turns = np.rint((candidate.astype(np.float64) - reference.astype(np.float64)) / turn)
        return np.asarray(np.where(np.abs(turns) == 1, candidate - turns * turn, candidate))


def measure(
    name: str, reference: Array, candidate: Array, tolerance: Tolerance, *, integer_image: bool = False
) -> OutputMetrics:
    """Compare one output on one feed, element by element.

    Floating point of any width is compared in float64; an element is out of tolerance when |d| exceeds
    ``tolerance.max_rel`` times max|reference|. Where the reference is not finite, the candidate must be the same. Masks
    must stay masks. Integers count equal elements. Where too few are equal, an ``integer_image`` is compared as
    numbers. These were rounded: numbers that the tolerance allows may be a level apart at a few elements.
    """
    if reference.shape != candidate.shape:
        note = f"shape {list(candidate.shape)}, reference {list(reference.shape)}"
        return OutputMetrics(name, False, cosine=0.0, out_of_tolerance=1.0, share_equal=0.0, note=note)
    if not _is_float(reference) and not _is_float(candidate):
        equal = _equal(name, reference, candidate, tolerance)
        if equal.passed or not integer_image:
            return equal
    top = 0.0
    for (piece,) in _pieces(reference):
        real = _real(piece)
        finite = real[np.isfinite(real) & (real > MASK)]
        top = max(top, float(np.max(np.abs(finite), initial=0.0)))
    scale = max(top, FLOOR)
    level = 1 / scale if integer_image and tolerance.max_rel * scale < 1 else 0.0
    worst = beyond = dot = own = other = 0.0
    outside = rounded = non_finite = count = 0
    for left, right in _pieces(reference, candidate):
        a, b = _real(left), _real(right)
        masked = a <= MASK
        masks_right = _mask_kept(a, b, tolerance) & masked
        fine_a, fine_b = np.isfinite(a) & ~masked, np.isfinite(b)
        both = fine_a & fine_b
        # An infinity or NaN that the reference has too is right; anything else that is not finite on one side is not.
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | masks_right
        non_finite += int(np.count_nonzero(fine_a & ~fine_b))
        a, b = np.where(both, a, 0.0) / scale, np.where(both, b, 0.0) / scale
        difference = np.abs(a - b)
        worst = max(worst, float(np.max(difference, initial=0.0)))
        outside += int(np.count_nonzero((difference > tolerance.max_rel) | (~both & ~same)))
        if level:
            next_level = np.abs(difference - level) <= 1e-3 * level
            rounded += int(np.count_nonzero(next_level))
            beyond = max(beyond, float(np.max(difference, initial=0.0, where=~next_level)))
        dot, own, other = dot + float(a @ b), own + float(a @ a), other + float(b @ b)
        count += a.size
    cosine = _cosine(dot, own, other, count, top)
    note, most = "" if count else "empty", worst
    # Of numbers that are off by a share of a level, that share rounds to the next one.
    allowed = math.ceil(tolerance.max_rel * scale * count)
    if level and 0 < rounded == outside <= allowed:
        note, outside = f"{rounded} of {count} elements are rounded to the next level", 0
        worst = max(beyond, tolerance.max_rel * rounded / allowed)
    return OutputMetrics(
        output=name,
        passed=outside == 0 and non_finite == 0 and cosine >= tolerance.cosine,
        max_abs=most * scale,
        max_rel=worst,
        cosine=cosine,
        out_of_tolerance=outside / count if count else 0.0,
        non_finite=non_finite,
        note=note,
        error=worst,
    )


def _mask_kept(a: Array, b: Array, tolerance: Tolerance) -> Array:
    """Where ``b`` has for a mask what its precision allows: the mask itself, or what FP16 has in its place."""
    if tolerance.max_rel >= 1e-3:
        return np.asarray(b <= -6e4)
    with np.errstate(invalid="ignore"):
        return np.asarray((a == b) | (np.abs(a - b) <= tolerance.max_rel * np.abs(a)))


def _cosine(dot: float, own: float, other: float, count: int, top: float) -> float:
    # One element has no direction, and zero but for noise has none either.
    if count < 2 or top <= FLOOR or (own == 0.0 and other == 0.0):
        return 1.0
    if own == 0.0 or other == 0.0:
        return 0.0
    return max(-1.0, min(1.0, dot / math.sqrt(own) / math.sqrt(other)))


def _equal(name: str, reference: Array, candidate: Array, tolerance: Tolerance) -> OutputMetrics:
    equal, worst = 0, 0.0
    if reference.dtype.kind in "OUS" or candidate.dtype.kind in "OUS":
        pairs = zip(reference.reshape(-1).tolist(), candidate.reshape(-1).tolist())  # noqa: B905 - Python 3.9
        equal = sum(_text(a) == _text(b) for a, b in pairs)
    else:
        for a, b in _pieces(reference, candidate):
            equal += int(np.count_nonzero(a == b))
            # Python integers: uint64 and int64 have no common type that holds both.
            if not np.array_equal(a, b):
                worst = max(worst, float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)))))
    share = equal / reference.size if reference.size else 1.0
    return OutputMetrics(
        output=name,
        passed=share >= tolerance.share_equal,
        max_abs=worst,
        out_of_tolerance=1.0 - share,
        share_equal=share,
        note="" if reference.size else "empty",
    )


def _text(item: object) -> str:
    return item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)
