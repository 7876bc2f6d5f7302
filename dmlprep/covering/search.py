"""Choose few boxes so that each point lies in one, and the boxes' elements over all points are least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

__all__ = ["MOST_NODES", "Problem", "best_rows"]

Array = np.ndarray[Any, np.dtype[np.float64]]

MOST_NODES = 4000
"""Sets that the branch and bound looks at before it gives up: some seconds."""


@dataclass(frozen=True)
class Problem:
    """Boxes [m, d], the largest first; points [n, d]; how often each point counts [n]."""

    boxes: Array
    points: Array
    counts: Sequence[int]

    @cached_property
    def costs(self) -> Array:
        """What a point costs in a box, [m, n]; infinite where it does not lie in it."""
        inside = (self.points[None] <= self.boxes[:, None]).all(-1)
        return np.where(inside, self.boxes.prod(1)[:, None] * np.array(self.counts, np.float64)[None], np.inf)


def best_rows(problem: Problem, count: int, *, prove: bool = True) -> tuple[list[int], bool]:
    """Rows of at most ``count`` boxes, and whether it is proved that no others cost less.

    Args:
        prove: look for a proof, or for a better set on the way to it.
    """
    costs = problem.costs
    rows = _exchanged(costs, _grown(costs, count))
    return _bounded(costs, rows, count) if prove else (rows, False)


def _grown(costs: Array, count: int) -> list[int]:
    """From the box around all points on, the box that helps most."""
    rows = [int(np.argmin(costs.sum(1)))]
    now = costs[rows[0]]
    while len(rows) < count:
        totals = np.minimum(costs, now).sum(1)
        row = int(np.argmin(totals))
        if totals[row] >= now.sum():
            break
        rows.append(row)
        now = np.minimum(now, costs[row])
    return rows


def _exchanged(costs: Array, rows: Sequence[int]) -> list[int]:
    """Boxes exchanged one for one as long as that helps."""
    rows = list(rows)
    best = float(costs[rows].min(0).sum())
    better = True
    while better:
        better = False
        for place in range(len(rows)):
            others = [row for index, row in enumerate(rows) if index != place]
            rest = costs[others].min(0) if others else np.full(costs.shape[1], np.inf)
            totals = np.minimum(costs, rest).sum(1)
            row = int(np.argmin(totals))
            if totals[row] < best:
                rows[place], best, better = row, float(totals[row]), True
    return rows


def _bounded(costs: Array, rows: list[int], count: int) -> tuple[list[int], bool]:
    """Branch and bound: a set is given up where even all later boxes together do not make it better than the best."""
    number, points = costs.shape
    later = np.minimum.accumulate(costs[::-1], axis=0)[::-1]
    best, least = rows, float(costs[rows].min(0).sum())
    nodes = 0
    stack: list[tuple[int, list[int], Array]] = [(0, [], np.full(points, np.inf))]
    while stack:
        start, chosen, now = stack.pop()
        if start >= number or float(np.minimum(now, later[start]).sum()) >= least:
            continue
        nodes += 1
        if nodes > MOST_NODES:
            return best, False
        if len(chosen) == count - 1:
            totals = np.minimum(costs[start:], now).sum(1)
            row = int(np.argmin(totals))
            if totals[row] < least:
                best, least = [*chosen, start + row], float(totals[row])
            continue
        stack.append((start + 1, chosen, now))
        stack.append((start + 1, [*chosen, start], np.minimum(now, costs[start])))
    return best, True
