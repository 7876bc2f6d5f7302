"""``dmlprep genai compare``: exit codes, text, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.genai.proof.decoders import Weights, folder, grouped
from tests.in_process import Run
from tests.kept_workers import kept_workers  # noqa: F401 - for all tests here


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("folders")
    weights = Weights.made()
    folder(top / "original", grouped(weights), shared=True)
    folder(top / "half", grouped(weights, "float16"), shared=True)
    folder(top / "broken", grouped(weights.changed("v1"), "float16"), shared=True)
    return top


def test_a_good_folder(run: Run, folders: Path) -> None:
    done = run("genai", "compare", folders / "original", folders / "half", "--steps", "3", "--no-genai")
    assert done.code == 0
    assert "prompt on cpu: passed" in done.out
    assert "KL" in done.out
    assert "4 of 4 tokens are equal" in done.out
    assert done.out.rstrip().endswith("on cpu: passed")


def test_json_holds_every_figure(run: Run, folders: Path) -> None:
    done = run(
        "genai", "compare", folders / "original", folders / "half", "--steps", "3", "--no-genai", "--format", "json"
    )
    found = json.loads(done.out)
    assert done.code == 0
    prompt, steps, greedy = found["checks"]
    assert prompt["verdict"]["outcome"] == "passed"
    assert 0 < prompt["logits"]["kl"] < 1e-3
    assert steps["logits"]["positions"] == 3
    assert greedy["greedy"]["equal"] == 4
    assert greedy["verdict"]["decides"] is False


def test_a_broken_folder(run: Run, folders: Path) -> None:
    done = run("genai", "compare", folders / "original", folders / "broken", "--steps", "3", "--no-genai", "-q")
    assert done.code == 1
    assert "failed" in done.out


def test_bad_input(run: Run, folders: Path, tmp_path: Path) -> None:
    done = run("genai", "compare", folders / "original", tmp_path / "nothing")
    assert done.code == 2
    assert "nothing" in done.err
    done = run("genai", "compare", folders / "original", folders / "half", "--steps", "0")
    assert done.code == 2
    done = run("genai", "compare", folders / "original", folders / "half", "--prompt", "words")
    assert done.code == 2
    assert "tokenizer.json" in done.err
