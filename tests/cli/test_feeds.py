"""``dmlprep feeds``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.in_process import Run
from tests.kept_workers import kept_workers  # noqa: F401 - for all tests here
from tests.parity.models import parse

image = pytest.importorskip("PIL.Image", reason="pip install -e '.[dev]'")
TEXT = "g (float[n, 3, 8, 8] x, float gain) => (float[n, 3, 8, 8] y) { y = Mul(x, gain) }"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    image.fromarray(np.full((8, 8, 3), 255, np.uint8)).save(tmp_path / "white.png")
    return parse(TEXT, tmp_path / "m.onnx")


def test_feeds_are_made_named_and_used(model: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "feeds"
    done = run("feeds", model, tmp_path / "white.png", "-o", out, "--mean", "0.5", "--deviation", "0.25,0.5,1")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"wrote 1 feed from pictures into {out}",
        "  x: [1, 3, 8, 8]",
        "  gain: [], synthetic: --set gives it a value",
        f"use them: --feeds {out}",
    ]
    compared = run("compare", model, model, "--feeds", out)
    assert compared.out.startswith("parity on cpu: passed (")
    assert "DP710" not in compared.out


def test_verdicts_on_made_inputs_say_so_and_how_to_give_real_ones(model: Path, run: Run) -> None:
    done = run("compare", model, model)
    assert done.out.startswith("parity on cpu: passed with synthetic inputs (")
    assert "pass real inputs with --feeds; dmlprep feeds makes them" in done.out
    said = json.loads(run("compare", model, model, "--format", "json").out)
    assert said["inputs"] == "seeded"
    assert [one["code"] for one in said["findings"]] == ["DP710"]


def test_an_original_that_does_not_run_on_made_inputs(tmp_path: Path, run: Run) -> None:
    text = "g (float[n, 4] x) => (float[1, 12] y) { s = Constant<value = int64[2] {1, 12}>() y = Reshape(x, s) }"
    path = parse(text, tmp_path / "fixed.onnx")
    done = run("compare", path, path, "--size", "n=2")
    assert done.code == 3
    assert "the inputs are synthetic (x [2, 4]; --pin, --size and parity.sizes set others): pass" in done.out
    np.savez(tmp_path / "real.npz", x=np.ones((2, 4), np.float32))
    given = run("compare", path, path, "--feeds", tmp_path / "real.npz")
    assert given.code == 3
    assert "synthetic" not in given.out


def test_values_of_other_inputs(model: Path, tmp_path: Path, run: Run) -> None:
    np.save(tmp_path / "gain.npy", np.array(3, np.float32))
    for number, value in enumerate(("2.5", str(tmp_path / "gain.npy"))):
        out = tmp_path / f"feeds{number}"
        done = run("feeds", model, tmp_path / "white.png", "-o", out, "--set", f"gain={value}", "--format", "json")
        assert json.loads(done.out)["seeded"] == []
        assert np.load(next(out.glob("*.npz")))["gain"] == (2.5, 3)[number]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--mean", "a"], "'a' is not a list of numbers"),
        (["--set", "gain"], "'gain' sets no value"),
        (["--set", "gain=x"], "'gain=x' sets no value"),
        (["--input", "gain"], "no input for pictures ('gain')"),
    ],
)
def test_bad_options_end_in_2(options: list[str], says: str, model: Path, tmp_path: Path, run: Run) -> None:
    done = run("feeds", model, tmp_path / "white.png", "-o", tmp_path / "feeds", *options)
    assert done.code == 2
    assert says in done.err
