"""Quantiles and ratios of times."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dmlprep.parity.bench.statistics import LEAST_ROUNDS, ratio_of_times, summary

_SECONDS = st.floats(1e-6, 1e3)
_CALM = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_ROUNDS = st.lists(st.lists(_SECONDS, min_size=1, max_size=4), min_size=1, max_size=12)
_QUANTILES = st.sampled_from([0.1, 0.5])


@_CALM
@given(st.lists(_SECONDS, min_size=1, max_size=50))
def test_quantiles_are_in_their_order_and_within_the_times(seconds: list[float]) -> None:
    times = summary(seconds)
    assert times.runs == len(seconds)
    # Interpolation may miss a bound by a rounding.
    ordered = [min(seconds), times.p10, times.median, times.p90, max(seconds)]
    assert all(one <= two * (1 + 1e-12) for one, two in pairwise(ordered))
    assert math.isclose(times.median, float(np.median(seconds)))
    assert math.isclose(times.per_second * sum(seconds), len(seconds))


@_CALM
@given(_ROUNDS, _QUANTILES)
def test_a_model_beside_itself_is_one(rounds: list[list[float]], quantile: float) -> None:
    found = ratio_of_times("first", dict(enumerate(rounds)), dict(enumerate(rounds)), quantile)
    assert found is not None
    assert found.value == 1
    if len(rounds) >= LEAST_ROUNDS:
        assert (found.low, found.high) == (1, 1)  # whole rounds are drawn, both models of one together
    else:
        assert (found.low, found.high) == (None, None)


@_CALM
@given(_ROUNDS, _ROUNDS, st.floats(0.01, 100), _QUANTILES)
def test_the_interval_holds_the_ratio_and_scales_with_it(
    one: list[list[float]], two: list[list[float]], factor: float, quantile: float
) -> None:
    found = ratio_of_times("first", dict(enumerate(one)), dict(enumerate(two)), quantile)
    longer = {number: [factor * run for run in runs] for number, runs in enumerate(two)}
    scaled = ratio_of_times("first", dict(enumerate(one)), longer, quantile)
    assert found is not None
    assert scaled is not None
    assert found.rounds == min(len(one), len(two))
    assert math.isclose(scaled.value, factor * found.value)
    assert (found.low is None) == (found.rounds < LEAST_ROUNDS)
    if found.low is not None and found.high is not None:
        assert found.low <= found.value <= found.high


def test_only_rounds_in_which_both_ran_count() -> None:
    found = ratio_of_times("first", {0: [1.0], 1: [1.0], 2: [50.0]}, {0: [2.0], 1: [2.0], 7: [90.0]})
    assert found is not None
    assert (found.value, found.rounds) == (2, 2)
    assert ratio_of_times("first", {0: [1.0]}, {1: [1.0]}) is None
    assert ratio_of_times("first", {0: [0.0]}, {0: [1.0]}) is None


@pytest.mark.parametrize("truth", [0.5, 1.0, 1.03])
def test_the_interval_covers_the_truth_under_noise_of_the_machine(truth: float) -> None:
    """Rounds that are disturbed for as long as they last, and runs that are disturbed by themselves."""
    covered, trials = 0, 40
    for trial in range(trials):
        draw = np.random.default_rng(trial)
        first, other = {}, {}
        for number in range(100):
            slow = draw.exponential(0.5) if draw.random() < 0.3 else 0.0
            first[number] = list((1 + slow) * (1 + draw.exponential(0.1, 3)))
            other[number] = list(truth * (1 + slow) * (1 + draw.exponential(0.1, 3)))
        found = ratio_of_times("first", first, other)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        assert abs(found.value / truth - 1) < 0.15
        covered += found.low <= truth <= found.high
    assert covered >= 0.85 * trials
