"""What FP16 may select or order otherwise, and what then cannot be compared one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dmlprep.model import Model
from dmlprep.model.ranked import Ranked

__all__ = ["ranked_error", "sized_by_data"]

Array = np.ndarray[Any, Any]

_MOST_ROWS = 5000
"""Matching is quadratic."""

_FOUND = 0.9
"""Share of rows that have to be found again: those at the end of a ranking may be others. Parity asks for as many."""

_SELECTS = frozenset({"NonMaxSuppression", "NonZero", "Unique", "Compress"})


def sized_by_data(model: Model) -> frozenset[str]:
    """Names of the main graph's values that a selecting operator makes, or that follow from one; parity has rules for
    such outputs (sets of boxes)."""
    found: set[str] = set()
    for node in model.ir.graph:
        if node.op_type in _SELECTS or any(v is not None and v.name in found for v in node.inputs):
            found.update(v.name for v in node.outputs if v.name)
    return frozenset(found)


def ranked_error(want: dict[str, Array], got: dict[str, Array], ranked: Ranked) -> float:
    """The error of rows that may come in another order: what nine of ten of them keep to.

    A row is matched with the nearest one of the other side whose integers are the same; its error is the largest
    difference in it, by max|reference| of its output.

    Returns:
        infinity where rows cannot be matched, or too few are found again.
    """
    left, right = ranked.rows(want), ranked.rows(got)
    if left is None or right is None or left.keys() != right.keys():
        return math.inf
    ours, theirs, scales = list[Array](), list[Array](), list[Array]()
    for name, rows in left.items():
        if rows.shape != right[name].shape or not 0 < len(rows) <= _MOST_ROWS:
            return math.inf
        flat = rows.reshape(len(rows), -1).astype(np.float64)
        real = rows.dtype.kind == "f"
        top = float(np.abs(flat[np.isfinite(flat)]).max(initial=0.0)) if real else 0.0
        scales.append(np.full(flat.shape[1], 1.0 / top if top else 1.0 if real else math.inf))
        ours.append(flat)
        theirs.append(right[name].reshape(len(rows), -1).astype(np.float64))
    return _beyond(np.concatenate(ours, 1), np.concatenate(theirs, 1), np.concatenate(scales))


def _beyond(left: Array, right: Array, scales: Array) -> float:
    free = np.ones(len(right), dtype=bool)
    errors = []
    for row in left:
        apart = np.abs(right - row)
        apart[(right == row) | (np.isnan(right) & np.isnan(row))] = 0.0
        with np.errstate(invalid="ignore"):
            weighed = np.where(apart == 0.0, 0.0, apart * scales)
        worst = np.where(free, np.where(np.isnan(weighed), math.inf, weighed).max(axis=1, initial=0.0), math.inf)
        nearest = int(np.argmin(worst))
        errors.append(float(worst[nearest]))
        free[nearest] &= not math.isfinite(errors[-1])
    return sorted(errors)[math.ceil(_FOUND * len(errors)) - 1]
