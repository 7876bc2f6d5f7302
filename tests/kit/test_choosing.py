"""Candidates of ``tune`` travel, are measured elsewhere, and the choice comes home."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dmlprep
from dmlprep import api
from dmlprep.core.errors import InputError, UsageError
from dmlprep.record.speed import ON_CPU
from dmlprep.record.tuning import PLACEMENT, TIME
from tests.fixtures_index import fixture
from tests.in_process import Run, run
from tests.kit.box import CPU, extract, rewritten, run_kit, sealed, stand_in

__all__ = ["run"]

CNN = fixture("residual_cnn")


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``kit.zip`` with two candidates, and ``result.zip`` of the CPU provider."""
    folder = tmp_path_factory.mktemp("candidates")
    found = dmlprep.tune(CNN.path, pins=CNN.pins, device="cpu", kit=folder / "kit.zip", top=2, bench_seconds=2)
    assert (found.exit_code, found.chosen) == (0, "@vision-fp16")
    done = run_kit(extract(folder / "kit.zip", folder / "box"), *CPU, "-o", folder / "result.zip")
    assert done.returncode == 0, done.stdout
    assert "candidate 2 of 2: @static-fp32" in done.stdout
    assert "timing the candidates in turn" in done.stdout
    return folder


def _edited(source: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A result that somebody changed, and sealed anew."""

    def both(members: dict[str, bytes]) -> None:
        result = json.loads(members["result.json"])
        change(result)
        sealed(members, **result)

    return rewritten(source, target, both)


def _as_a_gpu(result: dict[str, Any]) -> None:
    """The CPU's result as DirectML on a GPU would have given it, where FP32 takes half of FP16's time."""
    result["provider"] = "DmlExecutionProvider"
    result["device"] = {"adapter": "Radeon"}
    for one in (result, *result["others"]):
        one["session"]["providers"] = ["DmlExecutionProvider", "CPUExecutionProvider"]
        one["session"]["kernels"] = {"DmlExecutionProvider": 1}
    result["turns"] = {"0": [[0.002, 0.0021]] * 9, "1": [[0.001, 0.0011]] * 9}


def test_times_of_the_cpu_come_home_and_choose_nothing(sent: Path) -> None:
    found = dmlprep.choose_kit(sent / "result.zip", kit=sent / "kit.zip")
    assert (found.chosen, found.chosen_by, found.exit_code) == ("@vision-fp16", PLACEMENT, 0)
    assert found.bench is not None
    assert found.bench.note == ON_CPU
    assert found.bench.rounds >= 8
    assert [one.times is not None for one in found.bench.models] == [True, True]
    assert found.candidates[1].time is not None
    assert found.candidates[1].time.to == "@vision-fp16"
    assert {one.devices for one in found.candidates} == {("cpu",)}
    assert (found.model, found.before.nodes) == (CNN.path.name, 22)


def test_times_of_a_gpu_choose_and_the_recipe_is_prepared_as_the_table_says(sent: Path, tmp_path: Path) -> None:
    result = _edited(sent / "result.zip", tmp_path / "gpu.zip", _as_a_gpu)
    found = dmlprep.choose_kit(result, kit=sent / "kit.zip", out=tmp_path / "tuned.toml")
    assert (found.chosen, found.chosen_by) == ("@static-fp32", TIME)
    assert "proved on: dml on windows: Radeon" in found.recipe
    record = dmlprep.prepare(CNN.path, out=tmp_path / "out", recipe=tmp_path / "tuned.toml", device="cpu")
    figures = next(one.figures for one in found.candidates if one.name == found.chosen)
    assert figures is not None
    placed = record.facts.placement_after
    assert placed is not None
    assert (placed.nodes, placed.partitions, placed.crossings) == (figures.nodes, 1, figures.crossings)


def test_a_candidate_that_is_wrong_there_is_not_chosen(sent: Path, tmp_path: Path) -> None:
    """The first names the outputs of nobody: it is judged by them, and not by what it says of itself."""

    def swapped(result: dict[str, Any]) -> None:
        _as_a_gpu(result)
        result["others"][0]["outcome"], result["others"][0]["reason"] = "not-run", "removed"

    found = dmlprep.choose_kit(_edited(sent / "result.zip", tmp_path / "a.zip", swapped), kit=sent / "kit.zip")
    assert (found.chosen, found.candidates[1].proof) == ("@vision-fp16", "not-run")

    def none(result: dict[str, Any]) -> None:
        swapped(result)
        result["outcome"], result["reason"] = "not-run", "removed"

    found = dmlprep.choose_kit(_edited(sent / "result.zip", tmp_path / "b.zip", none), kit=sent / "kit.zip")
    assert (found.chosen, found.exit_code) == ("", 3)


def test_a_stranger_s_times_break_nothing(sent: Path, tmp_path: Path) -> None:
    def odd(result: dict[str, Any]) -> None:
        _as_a_gpu(result)
        result["turns"] = {"0": [[-1.0, 0.0], []], "7": [[1.0]], "1": [[1e308], [0.5]]}

    found = dmlprep.choose_kit(_edited(sent / "result.zip", tmp_path / "a.zip", odd), kit=sent / "kit.zip")
    assert found.exit_code == 0

    def fewer(result: dict[str, Any]) -> None:
        lost = [file for feed in result["others"][0]["feeds"] for file in feed["outputs"].values()]
        result["others"] = []
        for file in lost:
            del result["files"][file]

    with pytest.raises(InputError, match="nothing to choose"):
        dmlprep.choose_kit(_edited(sent / "result.zip", tmp_path / "b.zip", fewer), kit=sent / "kit.zip")


@pytest.mark.slow
def test_on_directml_s_stand_in(sent: Path, tmp_path: Path) -> None:
    box = extract(sent / "kit.zip", tmp_path / "box")
    done = run_kit(box, environment=stand_in(tmp_path / "site", "good"))
    assert done.returncode == 0, done.stdout
    found = dmlprep.choose_kit(box / "result.zip", kit=sent / "kit.zip")
    assert (found.chosen_by, found.exit_code) == (TIME, 0)
    assert found.bench is not None
    assert found.bench.note == ""
    done = run_kit(box, "--force", environment=stand_in(tmp_path / "site", "crash"))
    assert done.returncode == 1
    assert dmlprep.choose_kit(box / "result.zip", kit=sent / "kit.zip").exit_code == 1
    done = run_kit(box, "--force", environment=stand_in(tmp_path / "site", "missing"))
    assert done.returncode == 3


@pytest.mark.slow
def test_a_kit_of_one_model_and_a_key(made: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to choose"):
        dmlprep.choose_kit(made / "result.zip", kit=made / "kit.zip")
    with pytest.raises(UsageError, match="needs a proof"):
        dmlprep.tune(CNN.path, kit=tmp_path / "kit.zip", offline=True)
    key = tmp_path / "my.key"
    dmlprep.tune(CNN.path, pins=CNN.pins, device="cpu", kit=tmp_path / "kit.zip", top=1, key=key)
    box = extract(tmp_path / "kit.zip", tmp_path / "box")
    assert run_kit(box, *CPU, "--key", tmp_path / "kit.run-key").returncode == 0
    found = dmlprep.choose_kit(box / "result.zip", kit=tmp_path / "kit.zip", key=key)
    assert (found.chosen, found.exit_code) == ("@vision-fp16", 0)
    assert run_kit(box, *CPU, "--force").returncode == 0
    with pytest.raises(InputError):
        dmlprep.choose_kit(box / "result.zip", kit=tmp_path / "kit.zip", key=key)


def test_the_command(sent: Path, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "tuned.toml"
    done = run("tune", "--from-kit", sent / "result.zip", "--kit", sent / "kit.zip", "-o", out)
    assert done.code == 0, done.err
    assert ON_CPU in done.out
    assert f"wrote {out}" in done.out
    again = run("tune", "--from-kit", sent / "result.zip", "--kit", sent / "kit.zip", "-o", out, "--force", "-q")
    assert (again.code, again.out.count("\n")) == (0, 1), again.err


def test_the_next_commands_for_a_sealed_kit_name_both_keys(
    sent: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = dmlprep.choose_kit(sent / "result.zip", kit=sent / "kit.zip")
    monkeypatch.setattr(api, "tune", lambda *_, **__: chosen)
    done = run("tune", CNN.path, "--kit", "k.zip", "--key", "my.key", "--no-project")
    assert "python run.py --key k.run-key; then: " in done.out
    assert "dmlprep tune --from-kit result.zip --kit k.zip --key my.key" in done.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--from-kit", "result.zip"], "add --kit kit.zip"),
        (["--from-kit", "result.zip", "--kit", "kit.zip", "m.onnx"], "MODEL has no effect with --from-kit"),
        (["--from-kit", "result.zip", "--kit", "kit.zip", "--top", "2"], "--top has no effect with --from-kit"),
        ([], "Missing argument 'MODEL', or --from-kit RESULT."),
    ],
)
def test_what_does_not_fit_a_result(words: list[str], says: str, run: Run) -> None:
    done = run("tune", *words)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
