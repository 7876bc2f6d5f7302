"""A set of files is replaced as one: by the end, after a failure, and after a kill at any moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dmlprep.core.errors import OutputError
from dmlprep.core.files import FileSet
from dmlprep.portable.locks import held
from tests.system import needs_links

NAMES = ("model.onnx", "model.onnx.data", "run.json")

_KILLED = """
import os, sys
from pathlib import Path
from dmlprep.core.files import FileSet
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


def test_without_force_a_new_file_that_is_missing_does_not_exist(tmp_path: Path) -> None:
    new = _write(tmp_path / "staging", NAMES, "new")
    new[NAMES[0]].unlink()
    with pytest.raises(OutputError, match="cannot be written") as refused:
        _files(tmp_path).exchange(new, force=False)
    assert refused.value.fix.startswith("check the folder")
    assert _seen(tmp_path) == {}


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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (NAMES, NAMES[::2]),
        *(pytest.param(old, NAMES, marks=pytest.mark.slow) for old in (NAMES[::2], NAMES[2:], ())),
    ],
)
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


def test_a_kill_after_the_last_move_leaves_the_new_set(tmp_path: Path) -> None:
    _write(tmp_path / "staging", NAMES, "new")
    code = _KILLED.replace("seen > last", "event == 'os.remove' and 'old.json' in str(arguments[0])")
    line = [sys.executable, "-c", code, str(tmp_path), "0", ",".join(NAMES)]
    assert subprocess.run(line, check=False).returncode == 9
    assert _files(tmp_path).aside.exists()
    _files(tmp_path).recover()
    assert _seen(tmp_path) == _texts(NAMES, "new")
    assert not _files(tmp_path).aside.exists()


def test_what_another_run_holds_is_left_alone(tmp_path: Path) -> None:
    _write(tmp_path, NAMES, "old")
    files = _files(tmp_path)
    files.aside.mkdir()
    with held(files.aside) as mine:
        assert mine
        for act in (files.recover, lambda: files.exchange(_write(tmp_path / "staging", NAMES, "new"))):
            with pytest.raises(OutputError, match="in use by another run"):
                act()
    assert _seen(tmp_path) == _texts(NAMES, "old")
    files.recover()
    assert not files.aside.exists()


def test_folders_of_a_set_are_replaced_and_put_back_too(tmp_path: Path) -> None:
    made, place = tmp_path / "made", FileSet(tmp_path / "out", "run.json", ("dml", "cpu"), folders=("dml", "cpu"))
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


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../b", f".dmlprep-old-{'0' * 12}"])
def test_a_name_that_is_not_of_a_file_in_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    for head, others in ((name, ()), ("model.onnx", (name,))):
        with pytest.raises(OutputError, match="cannot be written"):
            FileSet(tmp_path, head, others)


def test_a_folder_of_the_user_in_the_place_of_a_file_stays(tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()
    (tmp_path / "run.json" / "mine").write_text("mine")
    with pytest.raises(OutputError, match="this is a folder"):
        _files(tmp_path).exchange(_write(tmp_path / "staging", NAMES, "new"))
    assert (tmp_path / "run.json" / "mine").read_text() == "mine"
    assert _seen(tmp_path) == {}


@pytest.mark.parametrize("name", NAMES)
def test_without_force_a_file_that_is_there_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(OutputError, match="the file exists") as refused:
        _files(tmp_path).exchange(_write(tmp_path / "staging", NAMES, "new"), force=False)
    assert refused.value.where == str(tmp_path / name)
    assert _seen(tmp_path) == {name: "mine"}


@pytest.mark.parametrize("late", NAMES)
def test_without_force_a_file_that_comes_between_two_moves_is_refused(
    tmp_path: Path, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is looked at once more by each move itself."""
    from dmlprep.core.files import exchange

    rename_new = exchange.rename_new

    def move(source: Path, target: Path) -> None:
        if target == tmp_path / late and source.parent.name == "staging":
            target.write_text("mine")
        rename_new(source, target)

    monkeypatch.setattr(exchange, "rename_new", move)
    with pytest.raises(OutputError, match="the file exists"):
        _files(tmp_path).exchange(_write(tmp_path / "staging", NAMES, "new"), force=False)
    assert _seen(tmp_path) == {late: "mine"}
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["staging"]


def _left_aside(folder: Path, files: dict[str, str], listed: object) -> Path:
    """The hidden folder of an exchange that was killed, or that somebody else made."""
    aside = _files(folder).aside
    aside.mkdir(parents=True)
    for name, text in files.items():
        (aside / name).write_text(text)
    (aside / "old.json").write_text(listed if isinstance(listed, str) else json.dumps(listed))
    return aside


def test_what_the_exchange_did_not_bring_is_not_removed(tmp_path: Path) -> None:
    _write(tmp_path, NAMES[1:], "mine")
    _left_aside(tmp_path, {}, {"old": [], "new": {name: [1, 1] for name in NAMES}})
    _files(tmp_path).recover()
    assert _seen(tmp_path) == _texts(NAMES[1:], "mine")
    assert not _files(tmp_path).aside.exists()


def test_what_the_exchange_did_not_bring_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("mine")
    aside = _left_aside(
        tmp_path, {"run.json": "old", "model.onnx": "old"}, {"old": ["model.onnx", "run.json"], "new": {}}
    )
    with pytest.raises(OutputError, match="another program wrote this file during the run") as refused:
        _files(tmp_path).recover()
    assert str(aside) in refused.value.fix
    assert (tmp_path / "run.json").read_text() == "mine"
    assert (aside / "run.json").read_text() == "old"
    (tmp_path / "run.json").unlink()
    _files(tmp_path).recover()
    assert _seen(tmp_path) == {"model.onnx": "old", "run.json": "old"}


@pytest.mark.parametrize(
    "listed",
    ["", "[", "[" * 100_000, "[]", "3", '{"old": 1, "new": 2}', '{"old": ["..", 7], "new": {"../mine": [4, 4]}}'],
)
def test_a_list_that_somebody_else_wrote(tmp_path: Path, listed: str) -> None:
    folder = tmp_path / "out"
    _left_aside(folder, {"x": "theirs"}, listed)
    _write(folder, NAMES[1:], "mine")
    (tmp_path / "mine").write_text("mine")
    _files(folder).recover()
    assert _seen(folder) == _texts(NAMES[1:], "mine")
    assert _seen(tmp_path) == {"mine": "mine"}


@needs_links
def test_a_link_in_the_place_of_the_hidden_folder_is_refused(tmp_path: Path) -> None:
    folder, other = tmp_path / "out", tmp_path / "other"
    _write(other, ("model.onnx", "old.json"), "mine")
    folder.mkdir()
    _files(folder).aside.symlink_to(other, target_is_directory=True)
    for act in (_files(folder).recover, lambda: _files(folder).exchange(_write(tmp_path / "staging", NAMES, "new"))):
        with pytest.raises(OutputError, match="blocks a hidden folder"):
            act()
    assert _seen(other) == _texts(("model.onnx", "old.json"), "mine")
    assert not list(folder.glob("*.json"))


@pytest.mark.parametrize("name", ["lock", "old.json"])
def test_files_that_are_called_as_those_of_the_exchange(tmp_path: Path, name: str) -> None:
    files = FileSet(tmp_path, "run.json", (name,))
    _write(tmp_path, ("run.json", name), "old")
    new = _write(tmp_path / "staging", ("run.json", name), "new")
    moved = {**new, "run.json": tmp_path / "missing"}
    with pytest.raises(OutputError):
        files.exchange(moved)
    assert _seen(tmp_path) == _texts(("run.json", name), "old")
    files.exchange(_write(tmp_path / "staging", ("run.json", name), "new"))
    assert _seen(tmp_path) == _texts(("run.json", name), "new")
