"""Small models whose run fills the memory or does not end: the proof does not run, and says how to allow it more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import dmlprep
from dmlprep import api
from dmlprep.core.errors import UsageError
from dmlprep.parity import Reference
from dmlprep.process.allowance import allowance
from dmlprep.runtime import SessionFailure, SessionOptions, open_cpu
from fixtures import running_away
from tests.fixtures_index import fixture
from tests.in_process import Run
from tests.kept_workers import own_workers
from tests.system import tells_time

__all__ = ["own_workers"]

pytestmark = [pytest.mark.usefixtures("own_workers"), tells_time]

_MIB, _GIB = 1 << 20, 1 << 30
_ENDLESS = ("looping", "nested")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text('doc = "One step."\n[step.pin]\n')
    return path


def saved(name: str, folder: Path) -> Path:
    path = folder / f"{name}.onnx"
    onnx.save(running_away.MODELS[name](), path)
    assert path.stat().st_size < 700
    return path


def run_of(path: Path, **options: object) -> Mapping[str, object]:
    size = path.stat().st_size
    with open_cpu(path, SessionOptions(model_bytes=size, **options)) as session:  # type: ignore[arg-type]
        return session.run({"x": np.ones(1, np.float32)})


_LONG = {"expanded", "tiled", "counted", "together", "nested"}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * (one in _LONG)) for one in running_away.MODELS]
)
def test_no_proof_of_a_small_model_takes_all_there_is(name: str, tmp_path: Path, recipe: Path) -> None:
    seconds = 0.3 if name in _ENDLESS else 5.0  # to fill memory takes longer on a busy machine
    with dmlprep.limits(run_bytes=300 * _MIB, run_seconds=seconds):
        record = api.prepare(saved(name, tmp_path), out=tmp_path / "out", recipe=recipe, device="cpu")
    (verdict,) = record.verdicts
    assert (str(verdict.check), verdict.outcome, record.exit_code) == ("parity on cpu", "not-run", 3)
    assert verdict.reason.startswith("limit exceeded")
    field = "run_seconds" if name in _ENDLESS else "run_bytes"
    assert f"--limit {field}=" in verdict.reason
    assert field in str(record.error)
    assert not (tmp_path / "out").exists()


def test_without_any_setting_a_small_model_has_two_gigabytes_and_twenty_seconds_at_most(tmp_path: Path) -> None:
    assert allowance(700).nbytes < 2 * _GIB
    assert allowance(700).seconds < 20
    with pytest.raises(SessionFailure) as caught:
        run_of(saved("expanded", tmp_path))
    assert caught.value.kind == "limit"


@pytest.mark.slow
def test_what_a_model_may_take_grows_with_its_files_and_its_inputs(tmp_path: Path) -> None:
    pictures, language_model = allowance(25 * _MIB), allowance(5 * _GIB)
    assert pictures.nbytes > 6 * _GIB
    assert pictures.seconds > 500
    assert language_model.nbytes > 1000 * _GIB, "what the machine has decides about large models"
    assert language_model.seconds > 6 * 3600
    path = saved("together", tmp_path)
    with pytest.raises(SessionFailure):
        run_of(path)
    with open_cpu(path, SessionOptions(model_bytes=8 * _MIB)) as session:
        assert session.run({"x": np.ones(1, np.float32)})["y"] == 37


def test_the_user_s_lower_limits_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SessionFailure) as caught:
        run_of(saved("looping", tmp_path), time_limit=0.3)
    assert caught.value.kind == "timeout"
    monkeypatch.setenv("DMLPREP_MEMORY_LIMIT", "200M")
    with pytest.raises(SessionFailure) as caught:
        run_of(saved("tiled", tmp_path))
    assert caught.value.kind == "memory"
    assert "DMLPREP_MEMORY_LIMIT" in str(caught.value)


@pytest.mark.parametrize("command", ["compare", "bench", "bisect"])
def test_every_command_that_runs_a_model_has_the_limits(command: str, tmp_path: Path, run: Run) -> None:
    path = saved("nested", tmp_path)
    models = (path,) if command == "bench" else (path, path)
    done = run("--limit", "run_seconds=0.3", command, *models, "--device", "cpu")
    assert done.code == 3
    assert "--limit run_seconds=4 " in done.out + done.err


def test_a_step_that_runs_the_model_has_them_too(tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    done = run(
        *("prepare", saved("looping", tmp_path), "-o", out, "--device", "cpu", "--recipe", "@vision-fp16"),
        *("--set", "limits.run_seconds=0.3"),
    )
    assert done.code == 3
    assert "--limit run_seconds=4 " in done.out + done.err
    assert not out.exists()


def test_a_limit_of_the_original_is_not_tried_again(tmp_path: Path) -> None:
    with dmlprep.limits(run_seconds=0.3), Reference.of(saved("looping", tmp_path)) as reference:
        failures = []
        for _ in range(2):
            with pytest.raises(SessionFailure) as caught:
                reference.compute()
            failures.append(caught.value)
    assert failures[0] is failures[1]


def test_an_ordinary_model_does_not_notice(tmp_path: Path) -> None:
    record = api.prepare(fixture("residual_cnn").path, out=tmp_path / "out", pins={"batch": 1}, device="cpu")
    assert (record.exit_code, record.verdicts[0].outcome) == (0, "passed")


@pytest.mark.parametrize("wrong", [{"run_bytes": -1}, {"run_seconds": 0}, {"run_seconds": float("nan")}])
def test_a_limit_is_a_number(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="invalid limit"), dmlprep.limits(**wrong):  # type: ignore[arg-type]
        pass
