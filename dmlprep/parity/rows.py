"""Outputs that are sets of rows: a last bit can change the order and the number of what NonMaxSuppression keeps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from dmlprep.model import Model
from dmlprep.model.walk import attribute_graphs

__all__ = ["match_rows", "row_groups"]

Array = np.ndarray[Any, Any]

_COUNTING = frozenset(("NonMaxSuppression", "NonZero", "Unique", "Compress"))
"""Operators whose number of rows depends on values."""

_MOST_ROWS = 20_000
"""Matching is quadratic; beyond this many rows outputs are compared element by element."""


def row_groups(model: Model) -> list[tuple[tuple[str, ...], bool]]:
    """The outputs in groups that are compared together, in the order of the first of each.

    Returns:
        names of each group, and whether its rows are a set. Outputs that depend on the same row-choosing nodes and lead
        with the same dimension, which is neither fixed nor one of the inputs', are one group; every other is alone.
    """
    given = {str(d) for i in model.ir.graph.inputs if i.shape is not None for d in i.shape.dims}
    groups: dict[object, list[str]] = {}
    sets: set[object] = set()
    for value in model.ir.graph.outputs:
        name = value.name or ""
        first = value.shape[0] if value.shape is not None and len(value.shape) else None
        dimension = first.value if isinstance(first, ir.SymbolicDim) else first
        fixed = isinstance(dimension, int) or (dimension is not None and dimension in given)
        nodes = set() if fixed else _choosers(value)
        key: object = (frozenset(nodes), str(dimension)) if nodes else name
        groups.setdefault(key, []).append(name)
        if nodes:
            sets.add(key)
    return [(tuple(names), key in sets) for key, names in groups.items()]


def _choosers(value: ir.Value) -> set[int]:
    """The nearest row-choosing nodes that a value depends on, by identity."""
    found: set[int] = set()
    seen: set[int] = set()
    stack = [value]
    while stack:
        node = stack.pop().producer()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if node.op_type in _COUNTING:
            found.add(id(node))
            continue
        stack.extend(v for v in node.inputs if v is not None)
        for _, graph in attribute_graphs(node):
            stack.extend(graph.outputs)
    return found


def match_rows(
    names: tuple[str, ...], reference: dict[str, Array], candidate: dict[str, Array], max_rel: float
) -> tuple[float, dict[str, float], str] | None:
    """Match the rows of a group of outputs as sets.

    A row is the same row of every output of the group, side by side: box, score and label of one detection. Two rows
    match when every floating point element is within ``max_rel`` of its output's max|reference| and every other element
    is equal. Each row is used once.

    Returns:
        matched rows as a share of the larger set; max|d| / max|reference| of each floating output over them; a note.
        ``None`` where the outputs have no common rows.
    """
    sides = []
    for side in (reference, candidate):
        counts = {side[n].shape[0] if side[n].ndim else -1 for n in names}
        if len(counts) != 1 or -1 in counts:
            return None
        sides.append(counts.pop())
    (n, m) = sides
    if max(n, m) > _MOST_ROWS or any(reference[k].shape[1:] != candidate[k].shape[1:] for k in names):
        return None
    if any(reference[k].dtype.kind in "OUS" for k in names):
        return None
    if max(n, m) == 0:
        return 1.0, {}, "no rows in either"
    left, bounds = _table(names, reference, reference, max_rel)
    right, _ = _table(names, candidate, reference, max_rel)
    matched, shares = _matched(left, right, bounds)
    worst, column = dict[str, float](), 0
    for name in names:
        width = math.prod(reference[name].shape[1:])
        worst[name] = max_rel * float(np.max(shares[column : column + width], initial=0.0))
        column += width
    return matched / max(n, m), worst, f"as a set: {matched} of {n} rows found again, among {m}"


def _table(
    names: tuple[str, ...], side: dict[str, Array], reference: dict[str, Array], max_rel: float
) -> tuple[Array, Array]:
    """Rows of all outputs side by side, [rows, columns], and the bound of each column."""
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


def _matched(left: Array, right: Array, bounds: Array) -> tuple[int, Array]:
    """How many rows of ``left`` find a row of ``right`` of their own, nearest first.

    Returns:
        how many, and the largest share of its bound that any of them takes, by column.
    """
    free = np.ones(len(right), dtype=bool)
    matched = 0
    worst = np.zeros(left.shape[1])
    for row in left:
        distance = np.abs(right - row)
        fits = free & np.all((distance <= bounds) | (np.isnan(right) & np.isnan(row)), axis=1)
        if fits.any():
            candidates = np.flatnonzero(fits)
            nearest = candidates[np.argmin(np.nan_to_num(distance[candidates]).sum(axis=1))]
            free[nearest] = False
            matched += 1
            worst = np.maximum(worst, np.nan_to_num(distance[nearest]))
    return matched, np.divide(worst, bounds, out=np.zeros_like(worst), where=bounds > 0)
