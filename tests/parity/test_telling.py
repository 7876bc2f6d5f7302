"""Made feeds on which an original gives the same throughout are joined by others, which show more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dmlprep
from dmlprep.parity.feeds.run_feeds import variations
from tests.parity.models import parse


@pytest.mark.parametrize(
    "body",
    [
        "t = Constant<value = float {-20}>() s = ReduceMin<keepdims = 0>(x) a = Sub(t, s) y = Relu(a)",
        "y = ReduceLogSum(x)",
        "y = ReduceMean(x) k = Constant<value = float {2}>() z = Mul(y, k)",
    ],
)
def test_the_bar_stays_and_the_feeds_change(body: str, tmp_path: Path) -> None:
    text = f"g (float[1, 3, 8, 8] x) => (float y) {{ {body} }}"
    path = parse(text, tmp_path / "m.onnx")
    record = dmlprep.prepare(path, out=tmp_path / "out", device="cpu", settings={"parity.noise": "off"})
    (verdict,) = record.verdicts
    # No feed gets over the first threshold, and that is said.
    assert verdict.outcome == ("not-proven" if "Relu" in body else "passed"), verdict.reason


def test_bounds_are_widened_together_and_pinned_values_stay() -> None:
    feed = {
        "audio": np.ones((1, 16), np.float32),
        "fmin": np.float32(0.7),
        "fmax": np.array([0.3], np.float32),
        "scales": np.ones(4, np.float32),
        "gain": np.float32(0.5),
    }
    first, *others = variations(feed, ())
    assert first["fmin"] < feed["fmin"] < 300 <= first["fmax"][0]
    assert first["fmax"].shape == (1,)
    assert all(one["scales"] is feed["scales"] and one["gain"] is feed["gain"] for one in (first, *others))
    assert any(np.all(one["audio"] < 0) for one in others)
    assert {array.dtype.name for one in others for array in one.values()} == {"float32"}
    kept = list(variations(feed, {"audio", "fmin", "fmax"}))
    assert kept == []
