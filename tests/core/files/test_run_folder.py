"""What a run has begun goes with it; what a killed run left goes at the next start, and what lives stays."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmlprep.core.files import run_folder as runs
from dmlprep.core.files import staging_folder
from dmlprep.core.files.run_folder import PREFIX, at_end, end_run, noted, run_folder, sweep, temporary_folder
from dmlprep.portable.locks import clear_left, hold_new
from tests.system import needs_links, not_on_windows


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for temporary files of its own, and a process that has begun nothing yet."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(runs, "current", runs.Run())
    yield folder
    end_run()


def _left(folder: Path, name: str = "left") -> Path:
    """The folder of a run that was killed."""
    left = folder / f"{PREFIX}{name}"
    (left / "session-1").mkdir(parents=True)
    (left / "session-1" / "feed").write_bytes(b"half")
    (left / "lock").touch()
    return left


def test_all_of_a_run_lies_in_one_folder_and_goes_with_it(place: Path, tmp_path: Path) -> None:
    ended = []
    at_end(lambda: ended.append("a worker"))
    with temporary_folder("model") as name:
        assert Path(name).parent == run_folder()
        assert [p.name for p in place.iterdir()] == [run_folder().name]
    staging = staging_folder(tmp_path / "new" / "out")
    (staging.__enter__() / "model.onnx").write_text("half")
    end_run()
    assert ended == ["a worker"]
    assert not list(place.iterdir())
    assert not (tmp_path / "new").exists()


def test_what_a_killed_run_left_is_swept_and_what_lives_is_not(place: Path) -> None:
    left, begun = _left(place), place / f"{PREFIX}begun"
    begun.mkdir()  # killed before it held its folder
    other = place / "dmlprep-of-somebody-else"
    other.mkdir()
    own = run_folder()
    assert not left.exists()
    assert not begun.exists()
    living = hold_new(place, PREFIX)
    (living.path / "feed").touch()
    sweep()
    assert own.is_dir()
    assert (living.path / "feed").exists()
    assert other.is_dir()
    living.release()
    sweep()
    assert not living.path.exists()


def test_a_living_process_keeps_its_folder(place: Path) -> None:
    code = "from dmlprep.core.files.run_folder import run_folder; print(run_folder(), flush=True); input()"
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(place))}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        folder = Path(other.stdout.readline().strip())
        sweep()
        assert folder.is_dir()
        other.kill()
    sweep()
    assert not folder.exists()


@not_on_windows("the removal of an open file is not watched there")
def test_a_folder_that_is_being_removed_is_nobody_else_s(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left, living = _left(place), hold_new(place, PREFIX)
    for folder in (left, living.path):
        for number in range(20):
            (folder / f"note-{number}").touch()
    unlink, cleaned = os.unlink, list[Path]()

    def watched(path: str, *, dir_fd: int | None = None) -> None:
        unlink(path, dir_fd=dir_fd)
        monkeypatch.setattr(os, "unlink", unlink)
        clear_left(place, PREFIX, lambda folder: cleaned.extend(folder.glob("note-*")))
        monkeypatch.setattr(os, "unlink", watched)

    monkeypatch.setattr(os, "unlink", watched)
    clear_left(place, PREFIX)
    living.remove()
    monkeypatch.undo()
    assert cleaned == []
    assert not list(place.glob("*"))


@needs_links
def test_links_and_what_they_lead_to_stay(place: Path, tmp_path: Path) -> None:
    aim = tmp_path / "of the user"
    (aim / "sub").mkdir(parents=True)
    (place / f"{PREFIX}link").symlink_to(aim, target_is_directory=True)
    (_left(place) / "session-1" / "link").symlink_to(aim, target_is_directory=True)
    sweep()
    assert [p.name for p in place.iterdir()] == [f"{PREFIX}link"]
    assert (aim / "sub").is_dir()


@not_on_windows("its own users are told apart by the folder for temporary files")
def test_folders_of_others_stay(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = _left(place)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    sweep()
    assert left.is_dir()


def test_notes_that_make_no_sense_keep_nothing_from_being_swept(place: Path) -> None:
    for number, text in enumerate(("", "[]", '{"what": "magic"}', '{"what": "staging"}', '{"what": "exchange"}')):
        (_left(place, str(number)) / f"begun-{number}.json").write_text(text)
    sweep()
    assert not list(place.iterdir())


def test_a_folder_that_was_not_made_by_the_run_stays(place: Path, tmp_path: Path) -> None:
    """As where a container that was killed had its own folder of that name."""
    empty = tmp_path / "out"
    empty.mkdir()
    os.utime(empty, (1e9, 1e9))
    with pytest.raises(KeyboardInterrupt), noted("staging", folder=str(tmp_path), made=[str(empty)]):
        raise KeyboardInterrupt
    end_run()
    assert empty.is_dir()


def test_a_refusal_leaves_no_note(place: Path) -> None:
    with pytest.raises(ValueError, match="refused"), noted("staging", folder=str(place), made=[]):
        raise ValueError("refused")
    assert not list(run_folder().glob("*.json"))


_KILLED = """
import os, sys, tempfile
from pathlib import Path
from dmlprep.cli.main import choose_place
from dmlprep.core.files import FileSet, staging_folder
from dmlprep.core.files.run_folder import sweep
from dmlprep.core.files.writing import Writer

home = Path(sys.argv[1])
events = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "open")

def work(place):
    choose_place()
    with staging_folder(place / "new" / "out") as staging, Writer() as writer:
        (staging / "model.onnx").write_text("new")
        writer.open(place / "kit.zip").write(b"half")
        FileSet(place / "new" / "out", "model.onnx").exchange({"model.onnx": staging / "model.onnx"})
        writer.commit()

last, ended = 0, False
while not ended:
    place, temporary = home / str(last), home / str(last) / "temporary"
    temporary.mkdir(parents=True)
    tempfile.tempdir = None  # not chosen yet, as at the start of a program
    os.environ["TMPDIR"] = str(temporary)
    seen = 0
    def watch(event, arguments):
        global seen
        if event in events and str(place) in str(arguments[0]):
            seen += 1
            if seen > last:
                os._exit(9)
    child = os.fork()
    if child == 0:
        sys.addaudithook(watch)
        work(place)
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    sweep()
    left = sorted(str(p.relative_to(place)) for p in place.rglob("*"))
    whole = ["new", "new/out", "new/out/model.onnx"]
    allowed = ([], ["kit.zip"], whole, ["kit.zip", *whole])
    if [p for p in left if p != "temporary"] not in allowed:
        sys.exit(f"killed at {last}: {left}")
    last += 1
print(last)
"""


@not_on_windows("no fork; the steps are the same")
def test_a_kill_at_any_moment_leaves_nothing_after_the_next_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 25


@pytest.mark.parametrize(
    "call",
    [
        "mkdir",
        pytest.param("open", marks=not_on_windows("the file is open, and nothing knows of it yet")),
    ],
)
def test_a_stop_while_the_folder_is_made_leaves_none(place: Path, call: str) -> None:
    """SIGTERM is a KeyboardInterrupt, which may come when the folder is there and nothing knows of it."""
    real = getattr(os, call)
    patch = pytest.MonkeyPatch()

    def stopped(path: Path, *more: object, **options: object) -> object:
        done = real(path, *more, **options)
        if Path(path).is_relative_to(place):
            patch.undo()
            raise KeyboardInterrupt
        return done

    patch.setattr(os, call, stopped)
    with pytest.raises(KeyboardInterrupt):
        run_folder()
    assert not list(place.iterdir())


def test_a_stop_before_the_caller_has_the_folder_leaves_none(tmp_path: Path) -> None:
    def stopped(made: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hold_new(tmp_path, PREFIX, keep=stopped)
    assert not list(tmp_path.iterdir())
