"""What a person types, with mistakes, patterns and ``-q``; and what a build machine reads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dmlprep import api
from dmlprep.core.errors import CheckNotRun, ModelRefused
from dmlprep.portable.printable import apart
from tests.fixtures_index import fixture
from tests.in_process import Run
from tests.kept_workers import kept_workers  # noqa: F401 - for all tests here

_CNN = fixture("residual_cnn").path
_UNPROVED = ("--set", "parity.cpu=false", "--device", "cpu")


def test_a_name_that_is_nearly_right(tmp_path: Path, run: Run) -> None:
    shutil.copy(_CNN, tmp_path / "detector.onnx")
    done = run("check", tmp_path / "detecter.onnx")
    assert done.code == 2
    assert f"did you mean {tmp_path / 'detector.onnx'}?" in done.err
    assert "check the path" in run("check", tmp_path / "other.onnx").err


def test_a_size_of_nothing_is_refused_at_once(tmp_path: Path, run: Run) -> None:
    done = run("prepare", _CNN, "-o", tmp_path / "out", "--pin", "batch=0")
    assert (done.code, "DP210" in done.err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_a_missing_option_lists_its_values_in_one_line(run: Run) -> None:
    done = run("package", "out")
    assert (done.code, done.err.splitlines()[-1]) == (
        2,
        "Error: Missing option '--for'. Choose from: cpp, csharp, node, python",
    )


def test_a_broken_size_names_its_own_option(run: Run) -> None:
    done = run("compare", _CNN, _CNN, "--size", "rows")
    assert (done.code, "--size: 'rows' is not a valid size" in done.err, ":=" in done.err) == (2, True, False)
    assert "INPUT:=VALUE" in run("check", _CNN, "--plan", "--pin", "rows").err


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("fp16.keep_io=false", "write --set step.fp16.keep_io=false"),
        ("fuse.x=1", "has no step 'fuse'"),
        ("step.fp16.keep_io=flase", "one of: true, false"),
    ],
)
def test_settings_that_are_nearly_right(setting: str, said: str, tmp_path: Path, run: Run) -> None:
    done = run("prepare", _CNN, "-o", tmp_path / "out", "-r", "@vision-fp16", "--set", setting)
    assert done.code == 2
    assert said in done.err


def test_targets_by_number_and_nearly_right(run: Run) -> None:
    assert run("explain", "1.20").out.startswith("ort-1.20:")
    done = run("explain", "ort1.24")
    assert done.code == 2
    assert "did you mean 'ort-1.24' or " in done.err


def test_a_recipe_into_a_file(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "mine.toml"
    assert run("explain", "@vision-fp16", "-o", file).code == 0
    assert file.read_text(encoding="utf-8") == api.recipe_text("@vision-fp16")
    assert run("explain", file).code == 0
    assert run("explain", "@vision-fp16", "-o", file).code == 2
    assert run("explain", "@vision-fp16", "-o", file, "--force").code == 0
    assert "no such recipe file" in run("explain", "DP501", "-o", tmp_path / "no.toml").err
    file.write_text('doc = "d"\n[step.fp16]\nkeep_oi = true\n')
    done = run("explain", file)
    assert (done.code, done.out) == (2, "")
    assert "did you mean 'keep_io'" in done.err


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("a", "b"):
        shutil.copy(_CNN, folder / f"{name}.onnx")
    return folder


def test_several_models_by_a_pattern(models: Path, tmp_path: Path, run: Run) -> None:
    (models / "c.onnx").write_bytes(b"no model")
    done = run("prepare", models / "*.onnx", "-o", tmp_path / "out", "--pin", "batch=1", *_UNPROVED)
    assert done.code == 2
    assert "wrote 2 of 3 models" in done.out
    assert "c.onnx: " in done.err
    assert sorted(p.parent.name for p in (tmp_path / "out").rglob("run.json")) == ["a", "b"]
    both = run(
        "prepare", models / "[ab].onnx", "-o", tmp_path / "o", "--pin", "batch=1", *_UNPROVED, "--format", "json"
    )
    assert [Path(one["output"]).parent.name for one in json.loads(both.out)] == ["a", "b"]
    assert run("check", models / "[ab].onnx", "-q").out.count("nodes on DirectML") == 2


def test_a_failure_counts_more_than_what_could_not_run(
    models: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline that lets 3 pass must not miss a model that fails."""
    ends = iter((ModelRefused("it differs"), CheckNotRun("no device")))

    def fail(*_: object, **__: object) -> None:
        raise next(ends)

    monkeypatch.setattr(api, "prepare", fail)
    assert run("prepare", models / "*.onnx", "-o", tmp_path / "out").code == 1


def test_what_several_models_cannot_have(models: Path, tmp_path: Path, run: Run) -> None:
    (models / "deep").mkdir()
    shutil.copy(_CNN, models / "deep/A.onnx")
    out = ("-o", tmp_path / "out")
    assert "would both be written" in run("prepare", models / "**/*.onnx", *out).err
    assert "is one file" in run("prepare", models / "*.onnx", "-o", tmp_path / "out.onnx").err
    assert "--record needs a single" in run("prepare", models / "*.onnx", *out, "--record", tmp_path / "r.json").err
    done = run("check", models / "x*.onnx")
    assert (done.code, "no file matches" in done.err) == (2, True)


def test_quiet_is_one_line(tmp_path: Path, run: Run) -> None:
    out = tmp_path / "out"
    done = run("prepare", _CNN, "-o", out, "--pin", "batch=1", "--device", "cpu", "-q")
    assert (done.code, done.err) == (0, "")
    assert done.out.count("\n") == 1
    assert "proved on the CPU, not tried on DirectML" in done.out
    for command in (
        ("check", _CNN, "-q"),
        ("compare", _CNN, out / "model.onnx", "-q", "--size", "batch=1"),
        ("kit", out / "model.onnx", "-o", tmp_path / "kit.zip", "-q"),
        ("report", out, "-q"),
    ):
        done = run(*command)
        assert (done.code, done.err) == (0, ""), command
        assert done.out.count("\n") == 1, command


def test_what_was_only_loaded_is_not_proved(tmp_path: Path, run: Run) -> None:
    done = run("prepare", _CNN, "-o", tmp_path / "o", "--pin", "batch=1", "-q", *_UNPROVED)
    assert "written, not proved: 22 of 22 nodes" in done.out


def test_quiet_says_what_is_wrong(tmp_path: Path, run: Run) -> None:
    options = ("-r", "@vision-fp16", "--pin", "batch=1", "--device", "cpu", "--set", "parity.tolerance=rel:1e-9")
    done = run("prepare", _CNN, "-o", tmp_path / "o", "-q", *options)
    assert done.code == 1
    assert done.out.startswith(f"{_CNN}: failed (exit code 1): step fp16: ")
    assert done.out.count("DP404") == 1
    assert "\n  fix: " in done.out
    assert "nothing was written" in done.out


def test_annotations_for_github(tmp_path: Path, run: Run) -> None:
    done = run("check", fixture("detector_nms").path, "--format", "github")
    lines = done.out.splitlines()
    assert lines
    assert all(line.startswith(("::error file=", "::warning file=", "::notice file=")) for line in lines)
    assert any("title=dmlprep DP502::" in line for line in lines)
    bad = tmp_path / "a,b:c%.onnx"
    shutil.copy(fixture("detector_nms").path, bad)
    assert "a%2Cb%3Ac%25.onnx,title" in run("check", bad, "--format", "github").out


@pytest.mark.parametrize("name", ["::error::x", "  ::add-mask::x", "a ##[error]x", "a ##vso[task.complete]x"])
def test_names_are_no_commands_of_a_build_machine(name: str) -> None:
    said = apart(name)
    assert not said.lstrip().startswith("::")
    assert "##" not in said


def test_findings_of_one_code_are_one_group(run: Run) -> None:
    done = run("check", fixture("bert_encoder").path, "-v")
    assert done.out.count("DP205") == 1
    assert "free dimension, 2 times:" in done.out


def test_the_file_that_was_meant_is_named(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.toml", "run.json", "feeds.npz", "project.toml"):
        (tmp_path / name).write_bytes(b"")
    wrong = {
        "mine.toml": ("explain", "my.toml"),
        "run.json": ("report", "run.jsn"),
        "feeds.npz": ("compare", _CNN, _CNN, "--feeds", "feed.npz"),
        "project.toml": ("prepare", "--project", "projekt.toml"),
    }
    for name, words in wrong.items():
        done = run(*words)
        assert (done.code, f"did you mean {name}?" in done.err) == (2, True), done.err
    assert "did you mean" not in run("report", tmp_path).err.replace("did you mean run.json", "")
