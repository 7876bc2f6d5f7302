"""The feeds of one run: the same for every step and for the proof."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlprep
from dmlprep.core.errors import InputError
from dmlprep.graph.model import Model
from dmlprep.parity import RunFeeds
from dmlprep.parity import reference as reference_module
from dmlprep.pipeline.runner import CpuRunner
from tests.parity.models import opened, parse

TEXT = "g (float[n, 3, 8, 8] x) => (float[n, 3, 8, 8] y) { y = Tanh(x) }"


def _same(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> bool:
    return len(left) == len(right) and all(
        a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a) for a, b in zip(left, right, strict=True)
    )


def test_more_feeds_begin_with_those_that_were_made(tmp_path: Path) -> None:
    model = opened(TEXT, tmp_path)
    feeds = RunFeeds(model, rough=True)
    first, three = feeds.of(model, 1), feeds.of(model, 3)
    assert _same(first, three[:1])
    assert _same(three, RunFeeds(model, rough=True).of(model, 3))


def test_sizes_that_a_step_fixed_are_those_of_the_feeds(tmp_path: Path) -> None:
    model = opened(TEXT, tmp_path)
    pinned = opened(TEXT.replace("float[n", "float[3"), tmp_path)
    feeds = RunFeeds(model)
    assert feeds.of(model, 1)[0]["x"].shape != (3, 3, 8, 8)
    assert feeds.of(pinned, 1)[0]["x"].shape == (3, 3, 8, 8)


def test_a_size_for_a_dimension_that_is_not_there_is_said_before_the_steps(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no input has a dimension 'm'"):
        RunFeeds(opened(TEXT, tmp_path), sizes={"m": 2})


@pytest.mark.parametrize("pins", [{}, {"n": 2}])
def test_search_and_proof_see_the_same_feeds(
    pins: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[dict[str, Any]]] = []
    given = CpuRunner.feeds

    def feeds(self: CpuRunner, model: Model, count: int = 1) -> list[dict[str, Any]]:
        seen.append(given(self, model, count))
        return seen[-1]

    computed = reference_module.Reference.compute

    def compute(self: reference_module.Reference, *arguments: Any) -> int:
        seen.append(self.feeds)
        return computed(self, *arguments)

    monkeypatch.setattr(CpuRunner, "feeds", feeds)
    monkeypatch.setattr(reference_module.Reference, "compute", compute)
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        'doc = "d"\n[step.pin]\n[step.simplify]\n'
        '[step.fp16]\nislands = "auto"\nkeep_io = false\n[parity]\ndml = "off"\n'
    )
    record = dmlprep.prepare(parse(TEXT, tmp_path / "m.onnx"), out=tmp_path / "out", recipe=recipe, pins=pins)
    assert record.exit_code == 0, record.error
    search, proof = seen[-3], seen[-1]
    assert _same(search, proof)
    assert all(feed["x"].dtype == np.float32 for feed in proof)
