"""What a file that was found decides: code that runs is named first, and results stay in the file's folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import dmlprep
from dmlprep.core.errors import UsageError
from dmlprep.pipeline.observer import Observer
from dmlprep.pipeline.project import read_project, result_places
from tests.fixtures_index import fixture
from tests.in_process import Run
from tests.kept_workers import kept_workers
from tests.system import needs_links

__all__ = ["kept_workers"]

_MODEL = "net.onnx"
_PLAIN = 'doc = "No step."\n[step.pin]\n[parity]\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    (place / "code").mkdir(parents=True)
    shutil.copy(fixture("half_cnn").path, place / _MODEL)
    text = "from pathlib import Path\nPath('ran').touch()\ndef own(reference, candidate):\n    return 0.0, True\n"
    (place / "code/own.py").write_text(text)
    (place / "plain.toml").write_text(_PLAIN)
    monkeypatch.chdir(place)
    return place


class Told(Observer):
    """Keeps what it is told of code, and whether the code had run by then."""

    def __init__(self) -> None:
        self.code: list[tuple[str, str, bool]] = []

    def runs_code(self, file: str, code: str) -> None:
        self.code.append((Path(file).name, code, Path("ran").exists()))


def _projects() -> dict[str, tuple[str, str, str]]:
    """How a metric is named: the project file, another file, and the file that names it."""
    return {
        "project": ('recipe = "plain.toml"\nmetric = "code/own.py:own"\n', "", "dmlprep.toml"),
        "entry": (f'recipe = "plain.toml"\n[models."{_MODEL}"]\nmetric = "code/own.py:own"\n', "", "dmlprep.toml"),
        "recipe": ('recipe = "code/r.toml"\n', _PLAIN + 'metric = "own.py:own"\n', "r.toml"),
        "setting": ('recipe = "@static-fp32"\nsettings = ["parity.metric=code/own.py:own"]\n', "", "parity.metric"),
    }


@pytest.mark.parametrize("how", _projects())
def test_a_metric_that_a_file_names_is_named_before_it_runs(how: str, folder: Path, run: Run) -> None:
    project, recipe, by = _projects()[how]
    (folder / "dmlprep.toml").write_text(f'out = "build"\ndevice = "cpu"\n{project}')
    (folder / "code/r.toml").write_text(recipe)
    done = run("prepare", "-q", _MODEL)
    assert done.code == 0, done.err
    (line,) = [line for line in done.err.splitlines() if "dmlprep runs it now" in line]
    assert by in line
    assert "own.py:own" in line
    (folder / "ran").unlink()
    told = Told()
    ran = dmlprep.prepare_project(models=[_MODEL], out=folder / "again", observer=told)
    assert ran.exit_code == 0
    ((file, code, had_run),) = told.code
    assert (by in file, code.endswith("own.py:own"), had_run) == (True, True, False)
    (record,) = ran.records.values()
    assert "DP712" in {finding.code for finding in record.findings}


def test_tune_names_it_where_it_proves(folder: Path, run: Run) -> None:
    (folder / "dmlprep.toml").write_text('device = "cpu"\nmetric = "code/own.py:own"\n')
    quick = ("tune", _MODEL, "-q", "--recipe", "plain.toml", "--top", "1")
    assert "dmlprep runs it now" not in run(*quick, "--offline").err
    assert not (folder / "ran").exists()
    assert run(*quick).err.count("own.py:own: dmlprep runs it now") == 1


def test_the_command_line_s_own_metric_needs_no_word(folder: Path, run: Run) -> None:
    (folder / "dmlprep.toml").write_text('metric = "code/gone.py:own"\n')
    done = run(
        *("prepare", "-q", _MODEL, "-o", "out", "--device", "cpu"),
        *("--recipe", "plain.toml", "--metric", "code/own.py:own"),
    )
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("recipe", [False, True], ids=["fleet", "recipe"])
def test_a_fleet_names_it_before_its_jobs_run(folder: Path, run: Run, recipe: bool) -> None:
    (folder / "code/r.toml").write_text(_PLAIN + ('metric = "own.py:own"\n' if recipe else ""))
    named = "" if recipe else 'metric = "code/own.py:own"\n'
    text = f'out = "build"\ndevice = "cpu"\nrecipe = "code/r.toml"\n{named}[models."{_MODEL}"]\n'
    (folder / "dmlprep.toml").write_text(text)
    assert "dmlprep runs it now" not in run("fleet", "--dry-run").err
    done = run("fleet", "-q")
    assert done.code == 0, done.err
    assert done.err.count("own.py:own: dmlprep runs it now") == 1
    assert ("r.toml" if recipe else "dmlprep.toml") in done.err
    assert "dmlprep runs it now" not in run("fleet", "-q").err, "what is known from before runs nothing"


_OUTSIDE = ["..", "../other", "build/../../other", "{there}", "{there}/net.onnx"]


@pytest.mark.parametrize("out", _OUTSIDE)
def test_results_do_not_leave_the_folder_of_the_file(out: str, folder: Path, tmp_path: Path, run: Run) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (folder / "plain.toml").write_text(_PLAIN + "cpu = false\n")
    named = out.format(there=there.as_posix())
    (folder / "dmlprep.toml").write_text(f'recipe = "plain.toml"\n[models."{_MODEL}"]\nout = "{named}"\n')
    (folder / "dmlprep.toml").write_text(f'out = "{named}"\n[models."{_MODEL}"]\n')
    before = sorted(tmp_path.rglob("*"))
    for command in ("prepare -q --device cpu", "fleet", "fleet --prune", "fleet --dry-run --prune"):
        done = run(*command.split())
        assert done.code == 2
        assert "is outside the folder" in done.err
        assert "-o FOLDER" in done.err
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(UsageError, match="is outside"):
        dmlprep.prepare_project(device="cpu")
    place = there / "net.onnx" if named.endswith(".onnx") else there
    done = run("prepare", "-q", "--device", "cpu", "-o", place)
    assert done.code == 0, done.err
    assert (there / "net.onnx").exists() or (there / "model.onnx").exists()


@needs_links
@pytest.mark.parametrize("linked", ["build", "build/net"])
def test_links_do_not_lead_results_out(linked: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (folder / linked).parent.mkdir(exist_ok=True)
    os.symlink(tmp_path / "there", folder / linked, target_is_directory=True)
    (folder / "dmlprep.toml").write_text('out = "build"\n')
    project = read_project(folder / "dmlprep.toml")
    with pytest.raises(UsageError, match="is outside"):
        result_places([Path(_MODEL)], None, project)
    (folder / "dmlprep.toml").write_text(f'out = "{linked}"\n[models."{_MODEL}"]\n')
    with pytest.raises(UsageError, match="is outside"):
        _ = read_project(folder / "dmlprep.toml").out


@needs_links
def test_a_project_behind_a_link_is_a_project(folder: Path, tmp_path: Path) -> None:
    os.symlink(folder, tmp_path / "link", target_is_directory=True)
    (folder / "dmlprep.toml").write_text('out = "build"\n')
    project = read_project(tmp_path / "link/dmlprep.toml")
    assert result_places([tmp_path / "link" / _MODEL], None, project)
