"""Which of several models that were timed is taken."""

from __future__ import annotations

from dmlprep.parity.bench import fastest
from dmlprep.record.speed import Bench, Ratio, Timed, Times


def _row(name: str, value: float, half: float | None = 0.0, not_run: str = "") -> Timed:
    if not_run:
        return Timed(name, "", not_run=not_run)
    low, high = (None, None) if half is None else (value - half, value + half)
    ratio = None if name == "input" else Ratio("input", value, low, high, 9)
    return Timed(name, "", times=Times(9, value, value, value, 1 / value), ratio=ratio)


def test_the_preferred_one_unless_another_is_surely_faster() -> None:
    rows = (_row("input", 1), _row("a", 0.52, 0.03), _row("b", 0.5, 0.03), _row("c", 0.9, 0.03))
    assert fastest(Bench("gpu", rows), ["a", "b", "c"]) == "a"
    assert fastest(Bench("gpu", rows), ["b", "a", "c"]) == "b"
    assert fastest(Bench("gpu", rows), ["c", "b", "a"]) == "b"
    assert fastest(Bench("gpu", (_row("a", 0.6, None), _row("b", 0.5, None))), ["a", "b"]) == "b"


def test_what_did_not_run_is_not_taken() -> None:
    rows = (_row("input", 1), _row("a", 1, not_run="no"), _row("b", 2, 0.1))
    assert fastest(Bench("gpu", rows), ["a", "b"]) == "b"
    assert fastest(Bench("gpu", rows), ["a"]) == ""
    assert fastest(Bench("gpu", ()), ["a"]) == ""
    assert fastest(Bench("gpu", rows), ["input", "b"]) == "input"
