"""Compare steep outputs: maps and rows of probabilities, and logits, which rounding changes much at a few places.

If a few elements are out of bounds, the output is judged by its use: the overlap of its masks, or the classes that win.
A wrong model changes more than the edges of its masks, and fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .measure import FLOOR, Tolerance
from .shares import percent

if TYPE_CHECKING:
    from .arrays import Array

STEEP = ("map", "classes", "logits")
"""Kinds of steep output: probabilities that are read as masks, rows that sum to one, rows whose largest element
wins."""

ACTIVE = 0.1
"""Share of a map's largest element. Elements above it are active; the rest is background. If all elements of a map
are below it, on the scale of 0 to 1, the map shows nothing."""

_CHUNK = 1 << 20
"""Number of elements that are compared together."""


class _Measure(NamedTuple):
    """One measure: in words, and as a share of its limit. ``mean``: an average over many elements, not a maximum."""

    text: str
    share: float
    mean: bool = False


class SteepError(NamedTuple):
    """The result for a steep output: its largest measure as a share of its limit, and all measures in words.

    ``only_faint`` is ``OutputMetrics.only_faint``.
    """

    share: float
    note: str
    only_faint: bool = False


def steep_error(
    kind: str, reference: Array, candidate: Array, tolerance: Tolerance, means: float = 1.0, faint: bool = True
) -> SteepError | None:
    """Return how far a steep output (a kind of ``STEEP``) is from its reference, judged by its use.

    Args:
        means: the weight of a mean, or of a share of many elements; the largest differences have weight 1.
        faint: whether a map that shows nothing has the bound of a single probability, on the scale of 0 to 1.

    Returns:
        The largest of its measures, each as a share of its limit in the tolerance: up to 1 passes. ``None`` if these
            measures do not apply. They need finite floating-point arrays of one shape, not empty, and a tolerance with
            an ``overlap`` below 1. A single element must be of the kind ``map``.
    """
    if reference.shape != candidate.shape or not reference.size or tolerance.overlap >= 1.0:
        return None
    if not (_finite(reference) and _finite(candidate)):
        return None
    if reference.size == 1:
        return _judged(_one(reference, candidate, tolerance), "as a probability", means) if kind == "map" else None
    axis = classes_axis(kind, reference)
    if kind == "logits" and axis is not None:
        return _judged(_logits(_rows(reference, axis), _rows(candidate, axis), tolerance), "as logits", means)
    if kind == "classes" and axis is not None and np.squeeze(reference).ndim < 3:
        measures = _classes(_rows(reference, axis), _rows(candidate, axis), tolerance)
        return _judged(measures, "as rows of probabilities", means)
    if axis is not None:  # the classes of each pixel: one map for each class
        reference, candidate = np.moveaxis(reference, axis, 0), np.moveaxis(candidate, axis, 0)
    own = _judged(_map(reference, candidate, tolerance), "as a map of probabilities", means)
    if kind != "map" or not faint or not _shows_nothing(reference, candidate, tolerance):
        return own
    wide = _judged([_faint(reference, candidate, tolerance)], "as an empty map", means)
    return wide._replace(only_faint=own.share > 1.0 >= wide.share) if wide.share < own.share else own


def _shows_nothing(reference: Array, candidate: Array, tolerance: Tolerance) -> bool:
    least = min(tolerance.thresholds)
    return float(np.max(np.abs(reference))) < min(ACTIVE, least) and float(np.max(candidate)) <= least


def classes_axis(kind: str, reference: Array) -> int | None:
    """Return the axis of the classes: the one along which probabilities sum to one, or the usual axis of logits.

    Return ``None`` if there is no such axis, and for the kind ``map``.
    """
    if kind == "logits":
        return (1 if reference.ndim == 4 else reference.ndim - 1) if reference.ndim else None
    if kind == "classes":
        for axis in reversed(range(reference.ndim)):
            sums = np.sum(reference, axis=axis, dtype=np.float64)
            if reference.shape[axis] > 1 and np.allclose(sums, 1.0, atol=5e-3):
                return axis
    return None


def _finite(array: Array) -> bool:
    return array.dtype.kind in "fV" and bool(np.isfinite(np.asarray(array, dtype=np.float32)).all())


def _judged(measures: list[_Measure], what: str, means: float) -> SteepError:
    texts = [f"{m.text} (out of tolerance)" if m.share > 1.0 else m.text for m in measures]
    share = max(m.share * (means if m.mean else 1.0) for m in measures)
    return SteepError(share, f"{what}: {', '.join(texts)}")


def _share(number: float, allowed: float) -> float:
    return number / allowed if allowed > 0 else (0.0 if number == 0 else float("inf"))


# -- maps ---------------------------------------------------------------------------------------------------------


def _one(reference: Array, candidate: Array, tolerance: Tolerance) -> list[_Measure]:
    """Measure a single probability on the scale of 0 to 1: a change from 0.009 to 0.0096 changes no decision."""
    off = abs(float(reference.reshape(-1)[0]) - float(candidate.reshape(-1)[0]))
    return [_Measure(f"{off:.2g} off", _share(off, tolerance.max_rel))]


def _faint(reference: Array, candidate: Array, tolerance: Tolerance) -> _Measure:
    pairs = zip(_planes(reference), _planes(candidate))  # noqa: B905 - Python 3.9
    off = max(float(np.max(np.abs(a - b))) for a, b in pairs)
    return _Measure(f"at most {off:.2g} off on the scale of 0 to 1", _share(off, min(tolerance.max_rel, ACTIVE)))


def _map(reference: Array, candidate: Array, tolerance: Tolerance) -> list[_Measure]:
    """Measure a map: the overlap of the maps and of their masks, the elements out of bounds, the largest stray element.

    At the edge of a mask, an element may have the value of a neighbour. A stray element has a value that none of its
    neighbours has. So the measure finds a lost or invented region, however small it is.
    """
    top = max(float(np.max(reference)), FLOOR)
    bound = tolerance.max_rel * top
    cuts = [cut for cut in tolerance.thresholds if cut < top] or [top / 2]
    common, either = [0] * len(cuts), [0] * len(cuts)
    shared = all_of_it = stray = 0.0
    outside = active = 0
    for a, b in zip(_planes(reference), _planes(candidate)):  # noqa: B905 - Python 3.9
        off = np.abs(a - b) > bound
        outside += int(np.count_nonzero(off))
        active += int(np.count_nonzero(np.maximum(a, b) > ACTIVE * top))
        shared += float(np.sum(np.maximum(np.minimum(a, b), 0.0)))
        all_of_it += float(np.sum(np.maximum(a, b)))
        low, high = _around(a)
        stray = max(stray, float(np.max(np.maximum(low - b, b - high), initial=0.0)))
        for index, cut in enumerate(cuts):
            ours = a > cut
            theirs = np.where(off, b > cut, ours)  # an element within bounds stays on its side
            common[index] += int(np.count_nonzero(ours & theirs))
            either[index] += int(np.count_nonzero(ours | theirs))
    overlap = shared / all_of_it if all_of_it > 0 else 1.0
    allowed = 1.0 - tolerance.overlap
    measures = [_Measure(f"overlap {overlap:.4f}", _share(1.0 - overlap, allowed), mean=True)]
    for cut, both, one in zip(cuts, common, either):  # noqa: B905 - Python 3.9
        iou = both / one if one else 1.0
        measures.append(_Measure(f"mask IoU {iou:.4f} at {cut:.2g}", _share(1.0 - iou, allowed), mean=True))
    share = outside / max(active, 1)
    text = f"{percent(share, 2)} of the active elements out of bounds"
    measures.append(_Measure(text, _share(share, tolerance.outside), mean=True))
    measures.append(
        _Measure(f"at most {stray / top:.2g} from all its neighbours", _share(stray / top, tolerance.stray))
    )
    return measures


def _planes(array: Array) -> Iterator[Array]:
    """Yield the planes of the last two axes longer than 1, in float64, several at a time: [planes, height, width]."""
    flat = np.squeeze(array)
    height = flat.shape[-2] if flat.ndim > 1 else 1
    stacked = np.ascontiguousarray(flat).reshape(-1, height, flat.shape[-1])
    step = max(1, _CHUNK // max(1, height * flat.shape[-1]))
    for start in range(0, len(stacked), step):
        yield np.asarray(stacked[start : start + step], dtype=np.float64)


def _around(planes: Array) -> tuple[Array, Array]:
    """Return, for each element, the minimum and the maximum over itself and its neighbours.

    A single row stays unchanged.
    """
    if planes.shape[1] == 1:
        return planes, planes
    padded = np.pad(planes, ((0, 0), (1, 1), (1, 1)), mode="edge")
    height, width = planes.shape[1:]
    low = high = planes
    for down in range(3):
        for right in range(3):
            one = padded[:, down : down + height, right : right + width]
            low, high = np.minimum(low, one), np.maximum(high, one)
    return low, high


# -- rows ---------------------------------------------------------------------------------------------------------


def _rows(array: Array, axis: int) -> Array:
    return np.ascontiguousarray(np.moveaxis(array, axis, -1)).reshape(-1, array.shape[axis])


def _classes(reference: Array, candidate: Array, tolerance: Tolerance, *, logits: bool = False) -> list[_Measure]:
    """Measure rows of probabilities: their overlap, the worst row, and the rows in which the same class wins.

    The overlap is 1 minus the total variation. Another winner counts only if the reference's winner leads by more than
    twice ``tolerance.max_rel``. ``logits``: the rows are logits, and softmax comes first.
    """
    variations: list[Array] = []
    lost, clearest = 0, 0.0
    step = max(1, _CHUNK // reference.shape[1])
    for start in range(0, len(reference), step):
        a, b = (np.asarray(side[start : start + step], dtype=np.float64) for side in (reference, candidate))
        if logits:
            a, b = _softmax(a), _softmax(b)
        variations.append(np.sum(np.abs(a - b), axis=1) / 2)
        best = np.partition(a, -2, axis=1)[:, -2:]
        margin = best[:, 1] - best[:, 0]
        other = (np.argmax(a, axis=1) != np.argmax(b, axis=1)) & (margin > 2 * tolerance.max_rel)
        lost += int(np.count_nonzero(other))
        clearest = max(clearest, float(np.max(margin[other], initial=0.0)))
    variation = np.concatenate(variations)
    mean, worst = float(np.mean(variation)), float(np.max(variation))
    same = len(variation) - lost
    return [
        _Measure(f"overlap {1.0 - mean:.4f}", _share(mean, 1.0 - tolerance.overlap), mean=True),
        _Measure(f"the worst row differs by {worst:.2g}", _share(worst, tolerance.stray)),
        _Measure(f"the same class wins in {same} of {len(variation)} rows", _share(clearest, 2 * tolerance.max_rel)),
    ]


def _softmax(rows: Array) -> Array:
    powers = np.exp(rows - np.max(rows, axis=1, keepdims=True))
    result: Array = powers / np.sum(powers, axis=1, keepdims=True)
    return result


def _logits(reference: Array, candidate: Array, tolerance: Tolerance) -> list[_Measure]:
    if reference.shape[1] < 2:
        return [_Measure("there is one class", float("inf"))]
    top = max(float(np.max(np.abs(reference))), FLOOR)
    outside = np.count_nonzero(np.abs(reference.astype(np.float64) - candidate) > tolerance.max_rel * top)
    share = float(outside) / reference.size
    measures = _classes(reference, candidate, tolerance, logits=True)
    text = f"{percent(share, 2)} of the elements out of bounds"
    return [*measures, _Measure(text, _share(share, tolerance.outside), mean=True)]
