"""Sizes of one dimension: the levels to which they are rounded up with the least waste, by dynamic programming."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def best_levels(values: Sequence[int], counts: Sequence[int], most: int) -> list[list[int]]:
    """For 1, 2, ... ``most`` levels, the ones with the least sum of rounded sizes; fewer where there are fewer values.

    Time and memory grow with ``most * len(values)``, and time with the square of ``len(values)``.

    Args:
        values: in their order, each once.
        counts: how often each is asked for.
    """
    number = len(values)
    sizes, before = np.array(values, np.float64), np.concatenate([[0.0], np.cumsum(np.array(counts, np.float64))])
    # cost[j]: of the values below j; the last of them is a level.
    cost = np.concatenate([[0.0], sizes * before[1:]])
    choices: list[np.ndarray] = []
    found = [[values[-1]]]
    for _ in range(1, min(most, number)):
        best, choice = cost.copy(), np.full(number + 1, -1)
        for end in range(2, number + 1):
            totals = cost[1:end] + sizes[end - 1] * (before[end] - before[1:end])
            at = int(np.argmin(totals))
            if totals[at] < best[end]:
                best[end], choice[end] = totals[at], at + 1
        choices.append(choice)
        cost = best
        found.append(_levels(values, choices))
    return found


def _levels(values: Sequence[int], choices: Sequence[np.ndarray]) -> list[int]:
    levels, end = [], len(values)
    for choice in reversed(choices):
        if choice[end] >= 0:
            levels.append(values[end - 1])
            end = int(choice[end])
    levels.append(values[end - 1])
    return sorted(levels)
