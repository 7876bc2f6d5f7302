"""A set of files is replaced as one: by the end, after a failure, and after a kill at any moment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dmlprep.errors import OutputError
from dmlprep.files import FileSet
from dmlprep.files.locks import held

NAMES = ("model.onnx", "model.onnx.data", "run.json")

_KILLED = """
import os, sys
from pathlib import Path
from dmlprep.files import FileSet
folder, last, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
seen = 0
def watch(event, arguments):
    global seen
    if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "open") and str(folder) in str(arguments[0]):
        seen += 1
        if seen > last:
            os._exit(9)
files = FileSet(folder, "model.onnx", ("model.onnx.data", "run.json"))
sys.addaudithook(watch)
files.exchange({name: folder / "staging" / name for name in names})
"""


def _files(folder: Path) -> FileSet:
    return FileSet(folder, NAMES[0], NAMES[1:])


def _write(folder: Path, names: tuple[str, ...], text: str) -> dict[str, Path]:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(f"{text} {name}")
    return {name: folder / name for name in names}


def _seen(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.iterdir() if p.is_file()}


def _texts(names: tuple[str, ...], text: str) -> dict[str, str]:
    return {name: f"{text} {name}" for name in names}


SETS = [(), NAMES[:1], NAMES[::2], NAMES, NAMES[1:], NAMES[2:]]


@pytest.mark.parametrize("old", SETS)
@pytest.mark.parametrize("new", [NAMES, NAMES[::2]])
def test_the_new_set_stands_alone(old: tuple[str, ...], new: tuple[str, ...], tmp_path: Path) -> None:
    _write(tmp_path, old, "old")
    _files(tmp_path).exchange(_write(tmp_path / "staging", new, "new"))
    assert _seen(tmp_path) == _texts(new, "new")
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["staging"]


@pytest.mark.parametrize("old", SETS)
@pytest.mark.parametrize("missing", NAMES)
def test_where_a_new_file_cannot_be_moved_the_old_set_stays(old: tuple[str, ...], missing: str, tmp_path: Path) -> None:
    _write(tmp_path, old, "old")
    new = _write(tmp_path / "staging", NAMES, "new")
    new[missing].unlink()
    with pytest.raises(OutputError) as refused:
        _files(tmp_path).exchange(new)
    assert str(tmp_path / missing) in str(refused.value)
    assert _seen(tmp_path) == _texts(old, "old")
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["staging"]


@pytest.mark.skipif(sys.platform != "win32", reason="only Windows keeps open files in their place")
@pytest.mark.parametrize("open_elsewhere", NAMES)
def test_an_old_file_that_is_open_elsewhere(open_elsewhere: str, tmp_path: Path) -> None:
    _write(tmp_path, NAMES, "old")
    new = _write(tmp_path / "staging", NAMES, "new")
    with (tmp_path / open_elsewhere).open():
        with pytest.raises(OutputError) as refused:
            _files(tmp_path).exchange(new)
        assert _seen(tmp_path) == _texts(NAMES, "old")
    assert f"{tmp_path / open_elsewhere}: is open in another program" in str(refused.value)
    assert "permission" not in str(refused.value)
    _files(tmp_path).exchange(new)
    assert _seen(tmp_path) == _texts(NAMES, "new")


@pytest.mark.parametrize(("old", "new"), [(NAMES, NAMES[::2]), (NAMES[::2], NAMES), (NAMES[2:], NAMES), ((), NAMES)])
def test_a_kill_at_any_moment_leaves_no_mixture(old: tuple[str, ...], new: tuple[str, ...], tmp_path: Path) -> None:
    last, ended = 0, False
    outcomes = set()
    while not ended:
        folder = tmp_path / str(last)
        _write(folder, old, "old")
        _write(folder / "staging", new, "new")
        line = [sys.executable, "-c", _KILLED, str(folder), str(last), ",".join(new)]
        # Its temporary files apart: whoever starts next undoes what it left, and that may be another test.
        places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(tmp_path))
        done = subprocess.run(line, capture_output=True, check=False, encoding="utf-8", env={**os.environ, **places})
        assert done.returncode in (0, 9), done.stderr
        ended = done.returncode == 0
        found: Mapping[str, str] = _seen(folder)
        if NAMES[0] in found:  # it looks like a result, so it is one
            assert found in (_texts(old, "old"), _texts(new, "new"))
        _files(folder).recover()
        found = _seen(folder)
        assert found in (_texts(old, "old"), _texts(new, "new"))
        assert [p.name for p in folder.iterdir() if p.is_dir()] == ["staging"]
        outcomes.add(found == _texts(new, "new"))
        last += 1
    assert outcomes == {False, True}
    assert last > 5


def test_what_another_run_holds_is_left_alone(tmp_path: Path) -> None:
    _write(tmp_path, NAMES, "old")
    files = _files(tmp_path)
    files.aside.mkdir()
    with held(files.aside) as mine:
        assert mine
        for act in (files.recover, lambda: files.exchange(_write(tmp_path / "staging", NAMES, "new"))):
            with pytest.raises(OutputError, match="in use, by another run"):
                act()
    assert _seen(tmp_path) == _texts(NAMES, "old")
    files.recover()
    assert not files.aside.exists()


def test_folders_of_a_set_are_replaced_and_put_back_too(tmp_path: Path) -> None:
    made, place = tmp_path / "made", FileSet(tmp_path / "out", "run.json", ("dml", "cpu"))
    for name in ("out", "made"):
        (tmp_path / name / "dml").mkdir(parents=True)
        (tmp_path / name / "dml" / "model.onnx").write_text(name)
    (tmp_path / "out" / "run.json").write_text("out")
    (made / "cpu").mkdir()
    with pytest.raises(OutputError):  # the head cannot be moved, after both folders were
        place.exchange({"dml": made / "dml", "cpu": made / "cpu", "run.json": made / "run.json"})
    assert _seen(tmp_path / "out") == {"run.json": "out"}
    assert (tmp_path / "out" / "dml" / "model.onnx").read_text() == "out"
    assert not (tmp_path / "out" / "cpu").exists()
    (made / "dml").mkdir()
    (made / "run.json").write_text("made")
    place.exchange({"dml": made / "dml", "run.json": made / "run.json"})
    assert _seen(tmp_path / "out") == {"run.json": "made"}
    assert list((tmp_path / "out" / "dml").iterdir()) == []
