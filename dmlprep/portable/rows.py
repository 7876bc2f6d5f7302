"""Compare outputs as rows: rounding may change which rows NonMaxSuppression or TopK keeps, and their order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .arrays import Array

MOST_ROWS = 20_000
"""Limit for the number of rows that are matched, because the time is quadratic. Above it, outputs are compared
element by element."""


def match_rows(
    names: tuple[str, ...], reference: Mapping[str, Array], candidate: Mapping[str, Array], max_rel: float
) -> tuple[float, dict[str, float], str] | None:
    """Match the rows of a group of outputs as sets, without regard to their order.

    A row joins the same row of every output of the group: box, score and label of one detection. In two matching rows,
    floating-point elements differ by at most ``max_rel`` of their output's max|reference|. All other elements are
    equal. Each row is used once.

    Returns:
        matched rows as a share of the larger set; for each output, max|d| / max|reference| over the matched rows (no
            outputs if both sides have no rows); a note. ``None`` if the outputs of one side differ in their number of
            rows, or an output differs in the shape of its rows. Also ``None`` for scalars, for strings, and for more
            than ``MOST_ROWS`` rows.
    """
    counts = [{side[k].shape[0] if side[k].ndim else -1 for k in names} for side in (reference, candidate)]
    if any(len(one) != 1 or -1 in one for one in counts):
        return None
    n, m = (one.pop() for one in counts)
    if max(n, m) > MOST_ROWS or any(reference[k].shape[1:] != candidate[k].shape[1:] for k in names):
        return None
    if any(reference[k].dtype.kind in "OUS" for k in names):
        return None
    if max(n, m) == 0:
        return 1.0, {}, "no rows on both sides"
    reference_table, bounds = table(names, reference, reference, max_rel)
    candidate_table, _ = table(names, candidate, reference, max_rel)
    matched, shares = _matched(reference_table, candidate_table, bounds)
    worst, column = dict[str, float](), 0
    for name in names:
        width = math.prod(reference[name].shape[1:])
        worst[name] = max_rel * float(np.max(shares[column : column + width], initial=0.0))
        column += width
    return (
        matched / max(n, m),
        worst,
        f"as a set: {matched} of {n} rows match, among {m}{_tied(names, reference)}",
    )


def _tied(names: tuple[str, ...], reference: Mapping[str, Array]) -> str:
    """Return a clause for the note if most rows have the same score; otherwise ``""``.

    A score is an output with one number for each row.
    """
    for name in names:
        if reference[name].dtype.kind == "f" and reference[name].size == len(reference[name]):
            values, counts = np.unique(reference[name], return_counts=True)
            if 2 * counts.max(initial=0) > max(2, counts.sum()):
                value = values[counts.argmax()]
                return f"; {counts.max():,} of them tie at {value:.4g} in {name}, and rounding decides between ties"
    return ""


def table(
    names: tuple[str, ...], side: Mapping[str, Array], reference: Mapping[str, Array], max_rel: float
) -> tuple[Array, Array]:
    """Return the rows of all outputs side by side, [rows, columns], and for each column the largest allowed difference.

    The largest allowed difference of integers is 0.
    """
    columns, bounds = [], []
    for name in names:
        flat = side[name].reshape(side[name].shape[0], math.prod(side[name].shape[1:])).astype(np.float64)
        whole = reference[name].astype(np.float64)
        finite = whole[np.isfinite(whole)]
        exact = side[name].dtype.kind in "iub"
        bound = 0.0 if exact else max_rel * float(np.max(np.abs(finite), initial=0.0))
        columns.append(flat)
        bounds.append(np.full(flat.shape[1], bound))
    return np.concatenate(columns, axis=1), np.concatenate(bounds)


def _matched(reference_table: Array, candidate_table: Array, bounds: Array) -> tuple[int, Array]:
    """Match each row of ``reference_table`` with its nearest free row of ``candidate_table``.

    Return the number of matches, and for each column the largest difference as a share of its bound.
    """
    free = np.ones(len(candidate_table), dtype=bool)
    matched = 0
    worst = np.zeros(reference_table.shape[1])
    for row in reference_table:
        with np.errstate(invalid="ignore"):
            distance = np.where(candidate_table == row, 0.0, np.abs(candidate_table - row))  # equal infinite elements
        fits = free & np.all((distance <= bounds) | (np.isnan(candidate_table) & np.isnan(row)), axis=1)
        if fits.any():
            candidates = np.flatnonzero(fits)
            nearest = candidates[np.argmin(np.nan_to_num(distance[candidates]).sum(axis=1))]
            free[nearest] = False
            matched += 1
            worst = np.maximum(worst, np.nan_to_num(distance[nearest]))
    return matched, np.divide(worst, bounds, out=np.zeros_like(worst), where=bounds > 0)


def ranked_rows(names: tuple[str, ...], count: int | None, side: Mapping[str, Array]) -> dict[str, Array] | None:
    """Return the outputs that one TopK chose, with one row for each choice: ``[rows, ...]``, batch after batch.

    With several batches, the column ``""`` is the number of the row's batch. ``count`` is how many rows TopK chooses;
    ``None`` if the graph does not define it: then the rows are along axis 1, or along the only axis.

    The result is ``None`` if an output is a scalar, has strings or has no axis of ``count`` elements. It is also
    ``None`` if the outputs differ in their number of rows or batches.
    """
    result: dict[str, Array] = {}
    batches = set[int]()
    for name in names:
        array = side[name]
        axis = _axis(array, count)
        if axis is None:
            return None
        ranked = np.moveaxis(array, axis, min(axis, 1))
        if axis == 0:
            ranked = ranked[None]
        batches.add(ranked.shape[0])
        result[name] = ranked.reshape(ranked.shape[0] * ranked.shape[1], *ranked.shape[2:])
    if len(batches) != 1 or len({len(rows) for rows in result.values()}) != 1:
        return None
    batch = batches.pop()
    total = len(next(iter(result.values())))
    if batch > 1:
        result[""] = np.repeat(np.arange(batch), total // batch)
    return result


def _axis(array: Array, count: int | None) -> int | None:
    if array.dtype.kind in "OUS" or not array.ndim:
        return None
    if count is None:
        return min(array.ndim - 1, 1)
    # the axes after the batch come first
    order = [*range(1, array.ndim), 0]
    return next((axis for axis in order if array.shape[axis] == count), None)
