"""Measure how far one output is from its reference, element by element. Memory use does not grow with the output."""

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
"""Number of elements that are compared together: 8 MiB in float64, for each of several arrays."""

FLOOR = 1e-6
"""Smallest divisor of differences. An output whose max|reference| is below it is zero except for noise."""

MASK = -1e30
"""Values at or below this are masks, for elements that must not be chosen. They do not scale the differences of other
elements: a single -3.4e38 among logits would let every difference pass."""

NOISE_FACTOR = 4.0
"""Bound of a candidate's error, as a multiple of the original's own noise. Both add the same numbers in another order;
the candidate's error is the largest of millions of elements."""

ORDINARY_NOISE = 1e-3
"""Largest noise of FP32 in a sensitive model. Above it (and above the tolerance) the inputs prove nothing. Measured on
trained models with real inputs (``tests/benchmarks/trained.py``): 1e-6 to 6e-5, and 0.0025 to 0.11 for outputs that are
almost zero."""


@dataclass(frozen=True)
class Tolerance:
    """How far outputs may be from the reference.

    Attributes:
        name: the name of the tolerance; ``rel:...`` if the user set its bound.
        max_rel: largest max|d| / max|reference|, per output.
        cosine: smallest cosine of output and reference, flattened.
        share_equal: smallest share of equal elements, for integer, boolean and string outputs.
        rows: smallest share of matched rows, for outputs that are sets of boxes.
        reason: the source of these numbers, in one line.
        overlap: for steep outputs (``steep.STEEP``), smallest overlap of maps, masks and rows; 1: compare element by
            element.
        outside: largest share of elements out of bounds, among all elements for logits, among the active ones for maps.
        stray: for maps, how far an element may be from all its neighbours, as a share of the map's maximum; for rows,
            how much of one row may move.
        thresholds: the thresholds that turn maps into masks; half of the map's maximum if that is below all of them.
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
        """Return a tolerance with a larger ``max_rel`` if the original's output is noisy; otherwise this one.

        The new bound is ``NOISE_FACTOR`` times the noise. It is at most twice the old bound, or 0.004 if that is more.
        A bound that the user set, and a bound of 0, stay unchanged. ``None``: the noise is unknown.
        """
        if not noise or self.max_rel == 0 or self.name.startswith("rel:"):
            return self
        most = max(2 * self.max_rel, NOISE_FACTOR * ORDINARY_NOISE)
        return replace(self, max_rel=max(self.max_rel, min(NOISE_FACTOR * noise, most)))

    def beyond_proof(self, noise: float | None) -> bool:
        """Return whether the original differs so much from itself (``noise``) that a comparison proves nothing.

        False if the noise is unknown.
        """
        return noise is not None and noise > max(self.max_rel, ORDINARY_NOISE)

    def __str__(self) -> str:
        return f"{self.name}: max|d|/max|ref| <= {self.max_rel:g}, cosine >= {self.cosine:g}"


def _pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    flat = [np.ascontiguousarray(a).reshape(-1) for a in arrays]
    for start in range(0, flat[0].size, _CHUNK):
        yield tuple(a[start : start + _CHUNK] for a in flat)


def _real(piece: Array) -> Array:
    """Return the elements as float64; a complex number becomes two elements."""
    if piece.dtype.kind == "c":
        return np.asarray(np.stack([piece.real, piece.imag], -1).reshape(-1), dtype=np.float64)
    return np.asarray(piece, dtype=np.float64)


def _is_float(array: Array) -> bool:
    # ml_dtypes (bfloat16, float8) have the kind "V", but are numbers.
    return array.dtype.kind in "fcV"


def tells_something(output: Array) -> bool:
    """Return whether a comparison with this output can prove anything.

    An empty output, or one of only NaN and infinity, also equals a candidate that failed in the same way.
    """
    if not _is_float(output):
        return output.size > 0
    return any(bool(np.isfinite(_real(piece)).any()) for (piece,) in _pieces(output))


def unwound(reference: Array, candidate: Array, turn: float) -> Array:
    """Return a copy of the angles ``candidate``, each moved by a full ``turn`` if that is nearer to the reference.

    With ``turn`` 0, or other shapes than the reference, ``candidate`` is returned unchanged.
    """
    if not turn or reference.shape != candidate.shape:
        return candidate
    with np.errstate(invalid="ignore"):
        turns = np.rint((candidate.astype(np.float64) - reference.astype(np.float64)) / turn)
        return np.asarray(np.where(np.abs(turns) == 1, candidate - turns * turn, candidate))


def measure(
    name: str, reference: Array, candidate: Array, tolerance: Tolerance, *, integer_image: bool = False
) -> OutputMetrics:
    """Compare one output for one feed, element by element, and return its metrics.

    Floating-point types of any width are compared in float64. An element is out of tolerance when |d| exceeds
    ``tolerance.max_rel`` times max|reference|. Where the reference is not finite, the candidate must be the same. Masks
    (values at or below ``MASK``) must stay masks. The cosine must reach ``tolerance.cosine``. An output of another
    shape fails.

    For integers, booleans and strings, only the share of equal elements counts. If too few are equal, an
    ``integer_image`` is compared as numbers. Then a few elements may be one level apart, because numbers within the
    tolerance may round differently.
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
    for reference_piece, candidate_piece in _pieces(reference, candidate):
        a, b = _real(reference_piece), _real(candidate_piece)
        masked = a <= MASK
        masks_right = _mask_kept(a, b, tolerance) & masked
        fine_a, fine_b = np.isfinite(a) & ~masked, np.isfinite(b)
        both = fine_a & fine_b
        # An infinity or NaN that the reference has too is correct. Any other element that is not finite on one side is
        # wrong.
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
    # If numbers are off by a share of a level, the same share of them rounds to the next level.
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
    """Return, for each element, whether ``b`` has the mask of ``a`` as exactly as its precision allows.

    With a tolerance of FP16 (1e-3 or more), any value at or below -6e4 is a mask.
    """
    if tolerance.max_rel >= 1e-3:
        return np.asarray(b <= -6e4)
    with np.errstate(invalid="ignore"):
        return np.asarray((a == b) | (np.abs(a - b) <= tolerance.max_rel * np.abs(a)))


def _cosine(dot: float, own: float, other: float, count: int, top: float) -> float:
    # One element has no direction, and neither has an output that is zero except for noise.
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
            # Compare as Python integers: no common type represents all of uint64 and int64.
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
