"""Express the difference between the outputs of two models as one number, for searches that compare conversions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from dmlprep.metrics.tolerances import TOLERANCES
from dmlprep.portable.arrays import Array
from dmlprep.portable.comparison import OutputGroup
from dmlprep.portable.measure import Tolerance, measure, unwound
from dmlprep.portable.rows import MOST_ROWS, ranked_rows, table
from dmlprep.portable.steep import STEEP, steep_error

Side = Mapping[str, Array]

_BOUNDS = TOLERANCES["fp16-emulation"]

_ANGLE = _BOUNDS.max_rel / math.acos(_BOUNDS.cosine)
"""Factor from an angle in radians to an error: the angle that the tolerance allows counts as the difference that the
tolerance allows."""

_MEANS = 0.75
"""The least weight of a mean over a steep output (the largest difference has weight 1), if a search needs a margin.

The mean varies less than the largest difference, between feeds and between devices. With the same nodes in FP32, a
pitch tracker's overlap used 0.53 to 0.91 of its bound on six recordings. The proof allows a device 1.5 times the bound.
"""


def output_error(
    groups: Iterable[OutputGroup],
    want: Side,
    got: Side,
    enough: float = 0.0,
    steep: Tolerance = _BOUNDS,
    *,
    faint: bool = True,
) -> float:
    """Return the largest error of the outputs in ``groups``; infinity if shapes differ or a result is not finite.

    In rows that TopK chose, up to 10 % may be wrong or not finite (``ranked_error``).

    An output's error is max|difference| / max|reference|, or the angle between both if that is larger (small values
    next to one large one). Both are measured as in the proof, and the angle is scaled by the proof's bounds for the
    FP16 emulation. Elements that are masks, or not finite in the reference, are ignored. Integers are ignored too,
    except images: they follow from floating-point outputs by comparisons.

    Args:
        want: the outputs of the original on one feed, by name.
        got: the outputs of the other model on the same feed.
        enough: the accepted error. Two kinds of outputs with a larger one get a gentler measure: rows that TopK chose
            are matched first, steep outputs (probabilities, logits) get the proof's own measures.
        steep: the proof's bounds for steep outputs. If ``enough`` is below the bound of the FP16 emulation, they are
            tightened, too.
        faint: whether a map of probabilities that detects nothing is measured on the scale of 0 to 1.
    """
    worst = 0.0
    for group in groups:
        error = max((_error(group, name, want[name], got[name]) for name in group.names), default=0.0)
        if group.kind == "ranked" and error > enough:
            # Nearly equal scores come in another order. Their rows are the same.
            error = min(error, ranked_error(want, got, group))
        elif group.kind in STEEP and enough < error < math.inf:
            means = max(_MEANS, min(enough / _BOUNDS.max_rel, 1.0)) if enough else 1.0
            error = min(error, *(_steep_error(group.kind, want[n], got[n], steep, means, faint) for n in group.names))
        worst = max(worst, error)
    return worst


def _steep_error(kind: str, want: Array, got: Array, bounds: Tolerance, means: float, faint: bool) -> float:
    error = steep_error(kind, np.asarray(want), np.asarray(got), bounds, means, faint)
    return math.inf if error is None else error.share * _BOUNDS.max_rel


def _error(group: OutputGroup, name: str, want: Array, got: Array) -> float:
    reference, result = np.asarray(want), np.asarray(got)
    if reference.dtype.kind != "f" and name not in group.integer_images:
        return 0.0
    if reference.shape != result.shape:
        return math.inf
    result = unwound(reference, result, group.turn)
    metrics = measure(name, reference, result, _BOUNDS, integer_image=name in group.integer_images)
    if metrics.non_finite:
        return math.inf
    if metrics.max_rel == 0.0:
        return 0.0  # the cosine of equal tensors is 1 except for the last bit
    return max(metrics.max_rel, _ANGLE * math.acos(metrics.cosine))


def ranked_error(want: Side, got: Side, group: OutputGroup) -> float:
    """Return the error of a group of rows whose order may differ: the error that 90 % of the rows do not exceed.

    A row is matched with the nearest row of the other side that has the same integers. Its error is the largest
    difference in it, divided by max|reference| of its output. The rows at the end of a ranking may differ, so the worst
    10 % do not count, as in the proof.

    Returns:
        the error; infinity if shapes differ, if more than 10 % of the rows have no match, or if there are no rows or
        more than ``MOST_ROWS``.
    """
    want_rows, got_rows = (ranked_rows(group.names, group.count, side) for side in (want, got))
    if want_rows is None or got_rows is None or want_rows.keys() != got_rows.keys():
        return math.inf
    if any(rows.shape != got_rows[name].shape or not 0 < len(rows) <= MOST_ROWS for name, rows in want_rows.items()):
        return math.inf
    names = tuple(want_rows)
    ours, bounds = table(names, want_rows, want_rows, 1.0)
    theirs, _ = table(names, got_rows, want_rows, 1.0)
    with np.errstate(divide="ignore"):
        return _beyond(ours, theirs, 1.0 / bounds)


def _beyond(want_rows: Array, got_rows: Array, scales: Array) -> float:
    free = np.ones(len(got_rows), dtype=bool)
    errors = []
    for row in want_rows:
        apart = np.abs(got_rows - row)
        apart[(got_rows == row) | (np.isnan(got_rows) & np.isnan(row))] = 0.0
        with np.errstate(invalid="ignore"):
            weighed = np.where(apart == 0.0, 0.0, apart * scales)
        worst = np.where(free, np.where(np.isnan(weighed), math.inf, weighed).max(axis=1, initial=0.0), math.inf)
        nearest = int(np.argmin(worst))
        errors.append(float(worst[nearest]))
        free[nearest] &= not math.isfinite(errors[-1])
    return sorted(errors)[math.ceil(_BOUNDS.rows * len(errors)) - 1]
