"""Folders of jobs that left the matrix: only what a fleet wrote is removed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dmlprep.core.errors import OutputError
from dmlprep.fleet import STATE_FOLDER, FleetObserver, gone_jobs, jobs_of, prune
from dmlprep.fleet.run import lock_of
from dmlprep.pipeline.project import read_project
from dmlprep.portable.locks import held
from tests.fleet.conftest import Fleet
from tests.system import not_on_windows

_ONE = 'out = "build"\ndevice = "cpu"\n[models."m/a.onnx"]\nsizes = { small = { batch = 1 } }\n'


class _Told(FleetObserver):
    def __init__(self) -> None:
        self.removed: list[tuple[str, bool]] = []

    def job_removed(self, name: str, whole: bool) -> None:
        self.removed.append((name, whole))


@pytest.fixture
def left(fleet: Fleet) -> Fleet:
    """A fleet of a and b at two sizes, of which the file now names one job."""
    fleet.model("a")
    fleet.model("b")
    fleet.run()
    fleet.write(_ONE)
    return fleet


def _names(fleet: Fleet) -> list[str]:
    return [job.name for job in jobs_of(read_project(fleet.folder / "dmlprep.toml"))]


def _prune(fleet: Fleet) -> list[tuple[str, bool]]:
    told = _Told()
    prune(fleet.out, _names(fleet), told)
    return told.removed


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if STATE_FOLDER not in path.parts}


def test_jobs_that_are_gone_are_removed(left: Fleet) -> None:
    before = {name for name in _files(left.out) if name.startswith("a/small")}
    assert gone_jobs(left.out, _names(left)) == ["a/large", "b/large", "b/small"]
    assert _prune(left) == [("a/large", True), ("b/large", True), ("b/small", True)]
    assert _files(left.out) == before | {"a"}  # b, which is empty, is gone as well
    assert left.run().record.jobs[0].reused
    assert _prune(left) == []


def test_files_of_others_stay(left: Fleet) -> None:
    notes = left.out / "b/large/notes.txt"
    notes.write_text("mine")
    signed = left.out / "b/small/model.onnx"
    signed.write_text("signed by me")
    assert _prune(left) == [("a/large", True), ("b/large", False), ("b/small", False)]
    assert _files(left.out / "b") == {"large", "large/notes.txt", "small", "small/model.onnx"}
    assert signed.read_text() == "signed by me"


def test_folders_that_no_fleet_wrote_stay(left: Fleet) -> None:
    for name, text in (("mine", '{"key": "x"}'), ("other", "[]"), ("third", '{"format": 1, "key": ""}')):
        (left.out / name).mkdir()
        (left.out / name / "job.json").write_text(text)
        (left.out / name / "model.onnx").write_text("mine")
    (left.out / "plain").mkdir()
    (left.out / "plain/model.onnx").write_text("mine")
    _prune(left)
    for name in ("mine", "other", "third", "plain"):
        assert (left.out / name / "model.onnx").read_text() == "mine"


def test_a_folder_that_no_fleet_has_used_has_no_jobs(left: Fleet, tmp_path: Path) -> None:
    shutil.copytree(left.out / "b", tmp_path / "elsewhere/b")
    assert gone_jobs(tmp_path / "elsewhere", []) == []
    assert gone_jobs(tmp_path / "none", []) == []


@not_on_windows("links need a right there")
def test_links_are_not_followed(left: Fleet, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.move(left.out / "b", outside)
    (left.out / "b").symlink_to(outside)  # a folder
    result = left.out / "a/large/model.onnx"
    shutil.move(result, tmp_path / "kept.onnx")
    result.symlink_to(tmp_path / "kept.onnx")  # a file
    linked = left.out / "c"
    linked.mkdir()
    (linked / "job.json").symlink_to(outside / "small/job.json")
    before = _files(outside)
    assert _prune(left) == [("a/large", False)]
    assert _files(outside) == before
    assert (tmp_path / "kept.onnx").is_file()
    assert _files(left.out / "a/large") == {"model.onnx"}
    assert (linked / "job.json").is_symlink()


def test_one_that_was_interrupted_is_gone_on_with(left: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    import dmlprep.fleet.pruning as room

    removed: list[str] = []

    def stopped(path: Path) -> None:
        removed.append(path.name)
        if len(removed) == 3:
            raise KeyboardInterrupt
        os.remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(room, "remove", stopped)
        with pytest.raises(KeyboardInterrupt):
            _prune(left)
    assert removed == ["model.onnx", "run.json", "report.html"]
    assert _files(left.out / "a/large") == {"report.html", "job.json"}
    left.write()  # the job is named again: what is half there is no result
    assert [job.reused for job in left.run().record.jobs] == [True, False, True, True]
    left.write(_ONE)
    assert _prune(left) == [("a/large", True), ("b/large", True), ("b/small", True)]


def test_a_job_that_did_not_end_is_removed_by_its_names(left: Fleet) -> None:
    left.write()
    left.model("b", "another")
    with pytest.raises(KeyboardInterrupt):
        left.run(stop_at="b/small")
    folder = left.out / "b/small"
    state = (folder / "job.json").read_text()
    key = state.partition('"key":"')[2][:64]
    (folder / "job.json").write_text(f'{{"format":1,"key":"{key}"}}')  # as a run leaves it that was killed
    left.write(_ONE)
    assert ("b/small", True) in _prune(left)


def test_a_job_of_another_run_stays(left: Fleet) -> None:
    with held(lock_of(left.out / STATE_FOLDER, "b/small")) as ours:
        assert ours
        assert ("b/small", False) in _prune(left)
        assert (left.out / "b/small/model.onnx").is_file()
    assert _prune(left) == [("b/small", True)]


def test_a_job_above_another_leaves_it(fleet: Fleet) -> None:
    fleet.model("a")
    fleet.write('out = "build"\n[models."m/a.onnx"]\n')
    fleet.run()
    fleet.write(_ONE)
    fleet.run()
    assert _prune(fleet) == [("a", False)]
    assert _files(fleet.out) == {"a", *(f"a/small{name}" for name in ("", *_WRITTEN))}


_WRITTEN = ("/job.json", "/model.onnx", "/report.html", "/run.json")


def test_the_other_case_is_the_same_name(left: Fleet) -> None:
    assert gone_jobs(left.out, ["A/SMALL", "a/Large", "b/small", "B/large"]) == []


@not_on_windows("rights are others there")
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read all")
def test_a_folder_that_cannot_be_read(left: Fleet) -> None:
    (left.out / "b").chmod(0)
    try:
        with pytest.raises(OutputError):
            _prune(left)
    finally:
        (left.out / "b").chmod(0o755)


def test_a_state_folder_that_cannot_be_used_is_an_error(left: Fleet) -> None:
    locks = left.out / STATE_FOLDER / "locks"
    shutil.rmtree(locks)
    locks.write_bytes(b"")
    with pytest.raises(OutputError):
        _prune(left)
