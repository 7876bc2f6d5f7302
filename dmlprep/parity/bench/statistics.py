"""Statistics of run times: quantiles, and ratios with a confidence interval that assumes no distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dmlprep.portable.arrays import Array
from dmlprep.record.speed import Bench, Ratio, Timed, Times

LEAST_ROUNDS = 6
"""Fewest rounds for a confidence interval: with fewer, all may be on one side of the true ratio (2 / 2**5 > 5 %)."""

_COVERAGE = 0.95
_DRAWS = 500
_MOST_CELLS = 1 << 22
"""Largest number of array elements in memory at a time while the bootstrap draws."""


def summary(seconds: Sequence[float]) -> Times:
    """Return count, median, 10 % and 90 % quantile of run times in seconds, and runs a second; one time is needed."""
    low, middle, high = (float(value) for value in np.quantile(seconds, (0.1, 0.5, 0.9)))
    total = math.fsum(seconds)
    return Times(len(seconds), middle, low, high, len(seconds) / total if total else 0.0)


def ratio_of_times(
    to: str, first: Mapping[int, Sequence[float]], other: Mapping[int, Sequence[float]], quantile: float = 0.5
) -> Ratio | None:
    """Return the ratio of two models' times, with a confidence interval, over the rounds in which both ran.

    The ratio is a quantile of the times of ``other``, divided by the same quantile of ``first``. The interval is the
    percentile bootstrap over rounds (B. Efron and R. J. Tibshirani, An Introduction to the Bootstrap, chapters 8 and
    13). It redraws whole rounds, with the times of both models: the runs of a round are not independent, because load
    that lasts longer than a round slows both models.

    Args:
        to: name of the model ``first``, for the result.
        first, other: times of single runs in seconds, by the number of the round.
        quantile: the quantile, 0 to 1; 0.5 is the median.

    Returns:
        the ratio, without an interval if the rounds are too few; ``None`` if the models have no round in common, or a
        quantile is 0.
    """
    both = sorted(first.keys() & other.keys())
    if not both:
        return None
    runs = [_Runs([side[number] for number in both]) for side in (first, other)]
    base, value = (float(np.quantile(one.seconds, quantile)) for one in runs)
    if base <= 0 or value <= 0:
        return None
    ratio, count = value / base, len(both)
    if count < LEAST_ROUNDS:
        return Ratio(to, ratio, rounds=count)
    generator = np.random.default_rng(0)
    ratios: list[Array] = []
    size = max(1, _MOST_CELLS // max(len(one.seconds) for one in runs))
    for begin in range(0, _DRAWS, size):
        # How often each round is drawn.
        times = generator.multinomial(count, np.full(count, 1 / count), min(size, _DRAWS - begin))
        below, above = (one.quantiles(times, quantile) for one in runs)
        ratios.append(above[below > 0] / below[below > 0])
    low, high = np.quantile(np.concatenate(ratios), ((1 - _COVERAGE) / 2, (1 + _COVERAGE) / 2))
    return Ratio(to, ratio, min(float(low), ratio), max(float(high), ratio), count)


class _Runs:
    """The times of all runs of one model (``seconds``), sorted, each with the index of its round."""

    def __init__(self, rounds: Sequence[Sequence[float]]) -> None:
        seconds = np.array([run for one in rounds for run in one])
        order = np.argsort(seconds, kind="stable")
        self.seconds = seconds[order]
        self._round = np.repeat(np.arange(len(rounds)), [len(one) for one in rounds])[order]

    def quantiles(self, times: Array, quantile: float) -> Array:
        """Return the quantile of the times for each draw of the bootstrap, [draws].

        ``times`` [draws, rounds] says how often each round was drawn.
        """
        weights = np.cumsum(times[:, self._round], axis=1)
        wanted = weights[:, -1:] * quantile
        # Average the two neighbours where the quantile is between them, as a median does.
        lower = np.argmax(weights >= wanted, axis=1)
        upper = np.argmax(weights > wanted, axis=1)
        middle: Array = (self.seconds[lower] + self.seconds[upper]) / 2
        return middle


def fastest(measurement: Bench, order: Sequence[str]) -> str:
    """Return the name of the first model in ``order`` that is not surely slower than any of them; empty if none ran.

    A model is surely slower than another if its ratio to the base model has an interval wholly above the other's.

    Args:
        order: names of the models to choose from, the preferred one first.
    """
    ran = {one.name: _interval(one) for one in measurement.models if one.times is not None and one.name in order}
    least = min((high for _, high in ran.values()), default=0.0)
    return next((name for name in order if name in ran and ran[name][0] <= least), "")


def _interval(one: Timed) -> tuple[float, float]:
    """Return the confidence interval of a model's ratio to the base model, as its lower and upper end.

    The ends are 1 for the base model itself, and the ratio itself if no interval is known.
    """
    if one.ratio is None:
        return 1.0, 1.0
    value = one.ratio.value
    low, high = one.ratio.low, one.ratio.high
    return value if low is None else low, value if high is None else high
