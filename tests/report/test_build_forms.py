"""What build systems read of a record: depfiles, and errors in MSBuild's form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dmlprep
from dmlprep.core.errors import InputError, OutputError
from dmlprep.record import RunError, RunRecord, finding
from dmlprep.record.run_record import RunFacts
from dmlprep.report import depfile, msbuild
from tests.cli.buildsys.tools import MODELS, RECIPE
from tests.in_process import Run

_CNN = MODELS / "external_cnn.onnx"


def _record(*files: str) -> RunRecord:
    return RunRecord(command="prepare", input="m.onnx", output="out/model.onnx", facts=RunFacts(files=list(files)))


def test_both_forms_name_dmlpreps_version_first() -> None:
    version = str(Path(dmlprep.__file__).parent / "core" / "_version.py")
    assert depfile.lines(_record("/a b/m.onnx")).decode().splitlines()[0] == version
    assert depfile.make_rule(_record("/a b/m.onnx")).decode().split(" \\\n  ")[1] == version.replace("\\", "/")


def test_lines_hold_names_as_they_are_and_no_folders(tmp_path: Path) -> None:
    name = str(tmp_path / "a b;%#$é.onnx")
    assert depfile.lines(_record(name, str(tmp_path))).decode().splitlines()[1:] == [name]
    with pytest.raises(OutputError, match="contains control characters"):
        depfile.lines(_record(str(tmp_path / "a\nb")))


def test_everything_that_decides_is_a_dependency(tmp_path: Path, run: Run) -> None:
    recipe, metric, feeds = tmp_path / "r.toml", tmp_path / "metric.py", tmp_path / "feeds"
    recipe.write_text(RECIPE)
    metric.write_text("def far(reference, candidate):\n    return 0.0, True\n")
    feeds.mkdir()
    np.savez(feeds / "a.npz", pixel_values=np.ones((1, 3, 24, 24), np.float32))
    done = run(
        "prepare", _CNN, "-o", tmp_path / "out", "--recipe", recipe, "--feeds", feeds, "--metric", f"{metric}:far",
        "--device", "cpu", "--depfile", tmp_path / "d", "--depfile-format", "lines", "--external-data",
    )  # fmt: skip
    assert done.code == 0, done.err
    listed = (tmp_path / "d").read_text(encoding="utf-8").splitlines()
    assert listed[1:] == [str(x) for x in (_CNN, f"{_CNN}.data", recipe, feeds / "a.npz", metric)]
    assert (tmp_path / "out" / "model.onnx.data").exists()


def test_feeds_by_name_are_dependencies(tmp_path: Path) -> None:
    from dmlprep.parity import feed_files

    (tmp_path / "x.npy").touch()
    (tmp_path / "sets" / "test_data_set_0").mkdir(parents=True)
    (tmp_path / "sets" / "test_data_set_0" / "input_0.pb").touch()
    found = feed_files([f"x={tmp_path / 'x.npy'}", tmp_path / "sets", {"x": np.zeros(1)}])
    below = tmp_path / "sets" / "test_data_set_0"
    assert found == [tmp_path / "x.npy", tmp_path / "sets", below, below / "input_0.pb"]


def test_msbuild_reads_one_line_for_each_code() -> None:
    record = _record()
    record.findings = [finding("DP201", "a is free"), finding("DP201", "b is free"), finding("DP710", "made inputs")]
    first, last = msbuild.lines(record)
    assert first.startswith("m.onnx : warning DP201: a is free (and 1 more) (fix: ")
    assert last == "m.onnx -> out/model.onnx"
    record.exit_code, record.error = 3, RunError("line one\nline two")
    assert list(msbuild.lines(record))[-1] == "m.onnx : error: line one\\nline two"
    record.findings = [finding("DP201", "a", severity="note"), finding("DP201", "b", severity="error")]
    (only,) = msbuild.lines(record)
    assert only.startswith("m.onnx : error DP201: b (and 1 more)")


def test_an_error_is_about_the_file_that_it_names(tmp_path: Path) -> None:
    there = tmp_path / "r.toml"
    there.touch()
    error = InputError("is broken", where=str(there), fix="mend it", code="DP001")
    assert msbuild.error_line(error, "m.onnx") == f"{there} : error DP001: is broken (fix: mend it)"
    error = InputError("is broken", where="step pin", code="DP001")
    assert msbuild.error_line(error, "m.onnx") == "m.onnx : error DP001: step pin: is broken"


def test_a_command_says_its_errors_in_msbuilds_form(tmp_path: Path, run: Run) -> None:
    (tmp_path / "m.onnx").write_text("no model")
    done = run("prepare", tmp_path / "m.onnx", "-o", tmp_path / "out", "--format", "msbuild")
    assert done.code == 2
    assert done.out.startswith(f"{tmp_path / 'm.onnx'} : error DP001: ")
    assert done.err == ""
