"""Outputs that prove nothing on the inputs at hand, and what the original's own noise changes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dmlprep.metrics import Comparison, OutputGroup, degenerate, find_tolerance, noise_of, nudged, stretched
from dmlprep.parity.judging import Judge, difference
from dmlprep.record import Check, Verdict

FP16, FP32 = find_tolerance("fp16-cpu"), find_tolerance("fp32-cpu")
RNG = np.random.default_rng(0)
MAP = RNG.random((1, 8, 8)).astype(np.float32)
ROWS = np.eye(5, dtype=np.float32)


@pytest.mark.parametrize(
    ("kind", "arrays", "said"),
    [
        ("elements", [MAP * 1e-9], "nearly zero"),
        ("elements", [np.array([np.nan, np.inf, -3.4e38])], "NaN, infinite or masks"),
        ("map", [MAP * 1e-4, MAP * 1e-3], "detects nothing"),
        ("map", [np.linspace(0.001, 0.01, 16)], ""),
        ("map", [np.full((4, 4), 0.999, np.float32)], "nearly constant"),
        ("classes", [ROWS[[2, 2, 2]], ROWS[[2]]], "the same class"),
        ("classes", [np.ones((3, 1), np.float32)], "nearly constant"),
        ("elements", [MAP], ""),
        ("elements", [np.full((4, 4), 0.5, np.float32)], ""),
        ("map", [MAP * 1e-4, MAP], ""),
        ("map", [(MAP > 0.5).astype(np.float32)], ""),
        ("classes", [ROWS[[2, 1, 2]]], ""),
        ("classes", [ROWS[[2]], ROWS[[3]]], ""),
        ("elements", [np.arange(3)], ""),
    ],
)
def test_what_a_wrong_model_would_give_as_well(kind: Any, arrays: list[Any], said: str) -> None:
    found = degenerate([OutputGroup(("y",), kind)], [{"y": a} for a in arrays], FP16)
    assert bool(found) == bool(said)
    assert said in found.get("y", "")


@pytest.mark.parametrize(
    ("noise", "bound", "off", "outcome"),
    [
        (1e-7, FP32, 5e-6, "passed"),
        (9e-4, FP32, 5e-6, "passed"),
        (2e-3, FP32, 5e-6, "not-proven"),
        (2e-3, FP32, 5e-3, "not-proven"),
        (0.068, FP32, 5e-7, "passed"),
        (0.068, FP32, 0.0, "passed"),
        (2e-3, FP16, 5e-3, "passed"),
        (0.03, FP16, 5e-3, "not-proven"),
        (0.03, FP16, 1e-3, "passed"),
    ],
)
def test_an_output_that_differs_from_itself_proves_by_an_error_far_below_the_tolerance(
    noise: float, bound: Any, off: float, outcome: str
) -> None:
    judge = Judge([OutputGroup(("y",))], bound, {"y": noise}, {})
    judge.add({"y": MAP}, {"y": MAP + np.float32(off) * MAP.max()})
    verdict = judge.judged(Verdict(Check("parity", "cpu"), "not-run", "not judged"), lambda m: difference(m, bound))
    assert verdict.outcome == outcome
    assert ("differs from itself" in verdict.reason) == (outcome == "not-proven")


@pytest.mark.parametrize(
    ("name", "noise", "bound"),
    [
        ("fp32-cpu", 1e-7, 1e-5),
        ("fp32-cpu", 1e-5, 4e-5),
        ("fp32-cpu", 0.1, 4e-3),
        ("fp16-cpu", 1e-3, 0.02),
        ("fp16-cpu", 8e-3, 0.032),
        ("fp16-cpu", 0.1, 0.04),
        ("rel:1e-06", 1e-5, 1e-6),
        ("exact", 1e-5, 0.0),
        ("fp32-cpu", None, 1e-5),
    ],
)
def test_nothing_is_asked_for_more_than_the_original_is_good_for(name: str, noise: float | None, bound: float) -> None:
    assert find_tolerance(name).raised(noise).max_rel == pytest.approx(bound)


def test_the_noise_of_one_output_is_not_that_of_another() -> None:
    want = {"a": MAP, "b": MAP}
    moved = {"a": MAP + 3e-5 * MAP.max(), "b": MAP + 3e-5 * MAP.max()}
    comparison = Comparison([OutputGroup(("a",)), OutputGroup(("b",))], FP32, {"a": 1e-5})
    comparison.add(want, moved)
    assert [(m.passed, m.bound, m.noise) for m in comparison.results()] == [(True, 4e-5, 1e-5), (False, 1e-5, None)]


def test_noise_is_measured_as_the_proof_measures() -> None:
    groups = [OutputGroup(("y",)), OutputGroup(("n",))]
    want: dict[str, Any] = {"y": MAP, "n": np.arange(3)}
    others: list[dict[str, Any]] = [
        {"y": MAP + np.float32(1e-4), "n": np.arange(3) + 1},
        {"y": MAP + np.float32(1e-5), "n": np.arange(3)},
    ]
    assert noise_of(groups, want, others) == {"y": pytest.approx(1e-4 / MAP.max(), rel=1e-2)}


def test_bfloat16_has_noise_too() -> None:
    want = {"y": np.array([1, 2, 4]).astype(ml_dtypes.bfloat16)}
    other = {"y": np.array([1, 2.25, 4]).astype(ml_dtypes.bfloat16)}
    assert noise_of([OutputGroup(("y",))], want, [other]) == {"y": 0.0625}


def test_a_nudge_is_the_last_bit_and_leaves_zeros_and_integers() -> None:
    feed: dict[str, Any] = {"x": np.array([0.0, 1.0, -3.0, np.inf, 3.4028234e38], np.float32), "n": np.arange(4)}
    moved = nudged(feed)
    assert moved["n"] is feed["n"]
    assert moved["x"].dtype == np.float32
    assert list(moved["x"] == feed["x"])[:4] == [True, False, False, True]
    assert np.isfinite(moved["x"][4])
    assert list(np.trunc(moved["x"][1:3])) == [1, -3], "they may be indices"
    tenth = np.float32(0.1)
    neighbours = {np.nextafter(tenth, np.float32(0)), np.nextafter(tenth, np.float32(1))}
    assert set(nudged({"x": np.full(64, tenth)})["x"]) == neighbours


@pytest.mark.parametrize("units", [1, -1, 4, -4])
def test_stretching_moves_every_float_the_same_way(units: int) -> None:
    feed: dict[str, Any] = {
        "x": np.array([0.0, 1.5, -3.0, np.inf, np.nan, 3.4028234e38], np.float32),
        "n": np.arange(4),
    }
    moved = stretched(feed, units)
    assert moved["n"] is feed["n"]
    assert moved["x"].dtype == np.float32
    away = np.abs(moved["x"][1:3]) > np.abs(feed["x"][1:3])
    assert list(away) == [units > 0] * 2
    assert list(moved["x"][1:3].view(np.int32) - feed["x"][1:3].view(np.int32)) == [units] * 2
    np.testing.assert_array_equal(moved["x"][[0, 3, 4]], feed["x"][[0, 3, 4]])
    assert np.isfinite(moved["x"][5])
