"""Metrics of one output: what counts as equal, and that nothing wrong passes."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dmlprep.metrics import Comparison, OutputGroup, find_tolerance, measure

FP32 = find_tolerance("fp32-cpu")
FP16 = find_tolerance("fp16-cpu")
EXACT = find_tolerance("exact")

finite = hnp.arrays(np.float32, hnp.array_shapes(max_dims=3), elements=st.floats(-1e6, 1e6, width=32))


@given(finite)
@settings(deadline=None)
def test_an_array_equals_itself(array: np.ndarray) -> None:
    metrics = measure("y", array, array.copy(), EXACT)
    assert metrics.passed
    assert (metrics.max_abs, metrics.out_of_tolerance, metrics.non_finite) == (0.0, 0.0, 0)
    assert metrics.cosine == pytest.approx(1.0)


@given(finite, st.integers(0, 10_000), st.floats(0.001, 1e3))
@settings(max_examples=50, deadline=None)
def test_one_wrong_element_fails_whatever_the_size(array: np.ndarray, place: int, size: float) -> None:
    wrong = array.astype(np.float64)
    scale = max(float(np.abs(array).max()), 1e-6)
    wrong.reshape(-1)[place % array.size] += size * scale
    metrics = measure("y", array, wrong, FP32)
    assert not metrics.passed
    assert metrics.max_rel == pytest.approx(size, rel=1e-3)
    assert metrics.out_of_tolerance == pytest.approx(1 / array.size)


def test_numbers_of_a_known_case() -> None:
    metrics = measure("y", np.array([3.0, 4.0], np.float32), np.array([3.0, 4.5], np.float32), FP16)
    assert metrics.max_abs == pytest.approx(0.5)
    assert metrics.max_rel == pytest.approx(0.125)
    assert metrics.cosine == pytest.approx((9 + 18) / 5 / np.sqrt(9 + 4.5**2))
    assert metrics.out_of_tolerance == 0.5


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_fails_in_every_tolerance(bad: float) -> None:
    reference = np.linspace(-1, 1, 100, dtype=np.float32)
    candidate = reference.copy()
    candidate[7] = bad
    metrics = measure("y", reference, candidate, find_tolerance("loose"))
    assert not metrics.passed
    assert metrics.non_finite == 1


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_the_reference_may_be_infinite_where_the_candidate_is_too(special: float) -> None:
    reference = np.array([1.0, special, 2.0], np.float32)
    assert measure("y", reference, reference.copy(), EXACT).passed
    other = measure("y", reference, np.array([1.0, 5.0, 2.0], np.float32), find_tolerance("loose"))
    assert not other.passed
    assert other.non_finite == 0


def test_signs_of_infinity_differ() -> None:
    assert not measure("y", np.array([np.inf, 1.0]), np.array([-np.inf, 1.0]), find_tolerance("loose")).passed


def test_fp16_is_compared_in_float64() -> None:
    reference = np.full(10, 60_000.0, np.float32)
    metrics = measure("y", reference, np.full(10, -60_000.0, np.float16), FP16)
    assert metrics.max_abs == pytest.approx(120_000.0, rel=1e-3)  # FP16 itself would say infinity
    assert not metrics.passed


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_types_that_numpy_does_not_know(kind: type) -> None:
    array = np.array([1.0, -2.0, 0.5])
    assert measure("y", array.astype(np.float32), array.astype(kind), EXACT).passed
    assert not measure("y", array.astype(np.float32), (-array).astype(kind), FP16).passed


def test_complex_numbers_count_by_their_parts() -> None:
    a = np.array([1 + 2j, 3 - 1j], np.complex64)
    assert measure("y", a, a.copy(), EXACT).passed
    assert not measure("y", a, a.conj(), FP16).passed


def test_an_output_of_zeros_is_held_to_noise() -> None:
    zeros = np.zeros(10, np.float32)
    assert measure("y", zeros, zeros + np.float32(1e-12), FP32).passed
    assert not measure("y", zeros, zeros + np.float32(1e-3), FP32).passed


def test_another_shape_fails() -> None:
    metrics = measure("y", np.zeros((2, 3)), np.zeros((3, 2)), find_tolerance("loose"))
    assert not metrics.passed
    assert "[3, 2]" in metrics.note


def test_empty_outputs_are_equal() -> None:
    assert measure("y", np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), EXACT).passed
    assert measure("y", np.zeros(0, np.int64), np.zeros(0, np.int64), EXACT).passed


@pytest.mark.parametrize(
    ("reference", "candidate", "share"),
    [
        (np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5]), 0.75),
        (np.array([True, False]), np.array([True, True]), 0.5),
        (np.array(["a", "b"], object), np.array(["a", "c"], object), 0.5),
        (np.array([2**63 + 1], np.uint64), np.array([2**63], np.uint64), 0.0),
        (np.array([7], np.int64), np.array([7], np.int32), 1.0),
    ],
)
def test_integers_booleans_and_strings_count_equal_elements(
    reference: np.ndarray, candidate: np.ndarray, share: float
) -> None:
    metrics = measure("y", reference, candidate, FP32)
    assert metrics.share_equal == share
    assert metrics.passed == (share == 1.0)


def test_a_direction_that_differs_fails_by_cosine() -> None:
    rng = np.random.default_rng(0)
    reference = rng.standard_normal(10_000) * 0.001
    reference[0] = 1.0
    candidate = reference.copy()
    candidate[1:] = rng.standard_normal(9_999) * 0.001
    candidate[0] = 1.0
    assert measure("y", reference, candidate, FP16).max_rel < FP16.max_rel
    noise = rng.standard_normal(10_000) * 0.01
    assert not measure("y", noise, rng.permutation(noise), FP16).passed


def test_memory_does_not_grow_with_the_output() -> None:
    reference = np.zeros(30_000_000, np.float16)
    tracemalloc.start()
    measure("y", reference, reference, FP16)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 120e6  # 240 MB would be one float64 copy


def test_the_worst_of_all_feeds_is_kept() -> None:
    comparison = Comparison([OutputGroup(("y",))], FP16)
    reference = {"y": np.array([1.0, 2.0])}
    comparison.add(reference, {"y": np.array([1.0, 2.01])})
    comparison.add(reference, {"y": np.array([1.0, 2.5])})
    comparison.add(reference, {"y": np.array([1.0, 2.0])})
    (worst,) = comparison.results()
    assert worst.max_rel == pytest.approx(0.25)
    assert not worst.passed


def test_no_feed_gives_no_result() -> None:
    assert Comparison([OutputGroup(("y",))], FP16).results() == []


def test_a_mask_among_logits_does_not_hide_what_is_wrong() -> None:
    reference = np.array([1.0, -3.4e38, 2.0, 0.5], np.float32)
    assert measure("y", reference, reference.copy(), FP32).passed
    for low in (-65504.0, -np.inf, -3.4e38):
        assert measure("y", reference, np.array([1.0, low, 2.0, 0.5], np.float32), FP16).passed
    assert not measure("y", reference, np.array([1.0, -3.4e38, 3.0, 0.5], np.float32), FP16).passed
    assert not measure("y", reference, np.array([1.0, 0.0, 2.0, 0.5], np.float32), FP16).passed
    assert not measure("y", reference, np.array([1.0, np.nan, 2.0, 0.5], np.float32), FP16).passed
    assert not measure("y", reference, np.array([1.0, -65504.0, 2.0, 0.5], np.float32), FP32).passed
    assert not measure("y", -reference, np.array([-1.0, np.inf, -2.0, -0.5], np.float32), FP16).passed
