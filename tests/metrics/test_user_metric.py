"""A measure of the user's own: what it may be, and what is said where it is something else."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dmlprep.core.errors import DmlprepError
from dmlprep.metrics import load_metric

ONE = {"y": np.array([1.0, 2.0], np.float32)}
OTHER = {"y": np.array([1.0, 3.0], np.float32)}


def _file(folder: Path, body: str) -> str:
    (folder / "own.py").write_text(f"import numpy as np\ndef worst(reference, candidate):\n    {body}\n")
    return "own.py:worst"


@pytest.mark.parametrize(
    ("body", "bound", "value", "passed"),
    [
        ("return np.abs(reference['y'] - candidate['y']).max()", 1.0, 1.0, True),
        ("return np.abs(reference['y'] - candidate['y']).max()", 0.5, 1.0, False),
        ("return 0.9, True", None, 0.9, True),
        ("return 0.9, np.bool_(False)", 1.0, 0.9, False),
        ("return float('nan')", 1.0, math.nan, False),
    ],
)
def test_it_judges(tmp_path: Path, body: str, bound: float | None, value: float, passed: bool) -> None:
    metric = load_metric(_file(tmp_path, body), bound, tmp_path)
    assert metric is not None
    assert metric.judge(ONE, OTHER) == (pytest.approx(value, nan_ok=True), passed)


@pytest.mark.parametrize(
    ("given", "body", "said"),
    [
        ("own.py", "return 1.0", "is not a metric"),
        ("own.txt:worst", "return 1.0", "is not a metric"),
        ("gone.py:worst", "return 1.0", "no such file"),
        ("own.py:best", "return 1.0", "has no function 'best'"),
        ("own.py:worst", "return 1.0 +", "does not run: SyntaxError"),
        ("own.py:worst", "return 1.0\nraise SystemExit(0)", "does not run: SystemExit"),
    ],
)
def test_what_cannot_be_loaded_is_said(tmp_path: Path, given: str, body: str, said: str) -> None:
    _file(tmp_path, body)
    with pytest.raises(DmlprepError, match=said):
        load_metric(given, 1.0, tmp_path)


@pytest.mark.parametrize(
    ("body", "bound", "said"),
    [
        ("return reference['x']", 1.0, "raised KeyError: 'x' \\(line 3 of .*own.py\\)"),
        ("raise SystemExit(0)", 1.0, "raised SystemExit: 0"),
        ("return 'much'", 1.0, "returned 'much', which is not a number"),
        ("return None", 1.0, "returned None"),
        ("return 0.5", None, "needs a bound"),
    ],
)
def test_what_fails_is_said(tmp_path: Path, body: str, bound: float | None, said: str) -> None:
    metric = load_metric(_file(tmp_path, body), bound, tmp_path)
    assert metric is not None
    with pytest.raises(DmlprepError, match=said):
        metric.judge(ONE, OTHER)


def test_a_bound_alone_is_an_error() -> None:
    assert load_metric("") is None
    with pytest.raises(DmlprepError, match="a bound is set without a metric"):
        load_metric("", 1.0)
