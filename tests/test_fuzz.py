"""A few mutated inputs, and every finding of the long runs once more."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from tests.fuzz.cases import make
from tests.fuzz.corpus import ROOT, Corpus, standard
from tests.fuzz.models import mutated
from tests.fuzz.running import Runner, found, run_all, runners, save
from tests.system import not_on_windows

pytestmark = not_on_windows("the watch over time and memory reads /proc")

FOUND = sorted(folder for folder in (ROOT / "fixtures" / "found").glob("*") if folder.is_dir())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return standard(tmp_path_factory.mktemp("corpus"), onnx_models=0)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with runners(tmp_path_factory.mktemp("runner"), 1) as ready:
        yield ready[0]


_LONG = {
    "check-33607480-10034",
    "check-33607480-10568",
    "check-33607480-8382",
    "check-a5d2da1f-18176",
    "check-ee5336b0-4219",
    "frame-e2917ca9-16193",
    "genai-9271a915-9457",
    "weights-33607480-589",
}
"""Inputs that take over 1 s of processor time, as they may."""


@pytest.mark.parametrize(
    "folder", [pytest.param(one, id=one.name, marks=[pytest.mark.slow] * (one.name in _LONG)) for one in FOUND]
)
def test_what_was_found_is_mended(folder: Path, runner: Runner) -> None:
    outcome = runner.run(found(folder))
    assert not outcome.fault, outcome.detail


@pytest.mark.slow
def test_a_few_inputs(corpus: Corpus, runner: Runner) -> None:
    outcomes = run_all((make(7, number, corpus) for number in range(60)), [runner], lambda _: None)
    assert [(o.case.number, o.fault, o.detail) for o in outcomes if o.fault] == []
    assert len({o.case.kind for o in outcomes}) > 5


@pytest.mark.slow
def test_a_seed_makes_the_same_cases(corpus: Corpus) -> None:
    assert [make(3, n, corpus) for n in range(40)] == [make(3, n, corpus) for n in range(40)]


def test_most_mutated_models_are_still_models(corpus: Corpus) -> None:
    rng, whole = random.Random(5), 0
    for _ in range(60):
        data = mutated(rng, rng.choice(corpus.models), rng.choice(corpus.models))
        try:
            onnx.ModelProto().ParseFromString(data)
            whole += 1
        except Exception:  # bytes that were edited
            continue
    assert whole > 30


def test_limits_are_watched(tmp_path: Path, corpus: Corpus) -> None:
    slow, large = Runner(tmp_path / "slow", seconds=0.0), Runner(tmp_path / "large", memory=1 << 20)
    try:
        assert slow.run(make(1, 0, corpus)).fault == "time"
        assert large.run(make(1, 0, corpus)).fault.startswith("memory")
    finally:
        slow.end()
        large.end()


@pytest.mark.parametrize("kind", ["check", "genai"])
def test_a_finding_is_run_again(tmp_path: Path, corpus: Corpus, runner: Runner, kind: str) -> None:
    case = make(1, 0, corpus, [kind])
    again = found(save(runner.run(case), tmp_path))
    assert (again.kind, again.files, again.command) == (case.kind, case.files, case.command)
