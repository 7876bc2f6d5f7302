"""Which of several models that were timed side by side to take."""

from __future__ import annotations

from collections.abc import Sequence

from dmlprep.record.speed import Bench, Timed


def fastest(found: Bench, order: Sequence[str]) -> str:
    """Of the models that ran, the first of ``order`` that no other is surely faster than; empty where none ran.

    One is surely faster where the intervals of both ratios, to the model that all are measured by, lie apart.

    Args:
        order: names of the models to choose from, the one that is preferred first.
    """
    ran = {one.name: _interval(one) for one in found.models if one.times is not None and one.name in order}
    least = min((high for _, high in ran.values()), default=0.0)
    return next((name for name in order if name in ran and ran[name][0] <= least), "")


def _interval(one: Timed) -> tuple[float, float]:
    """Where its ratio lies: 1 for the model that all are measured by, its value where no interval is known."""
    if one.ratio is None:
        return 1.0, 1.0
    value = one.ratio.value
    low, high = one.ratio.low, one.ratio.high
    return value if low is None else low, value if high is None else high
