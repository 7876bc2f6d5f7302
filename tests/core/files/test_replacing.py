"""Renaming and removing, with the waits that Windows needs."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from dmlprep.core.errors import OutputError
from dmlprep.core.files import remove, remove_tree, replace
from dmlprep.core.files.open_by import ProcessInfo, holders
from dmlprep.core.files.writing import append_file
from dmlprep.portable.replacing import WAIT_SECONDS

on_windows = pytest.mark.skipif(sys.platform != "win32", reason="only Windows keeps open files in their place")


def test_read_only_files_are_replaced_and_removed_as_on_linux(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("old")
    new.write_text("new")
    for path in (old, new):
        os.chmod(path, stat.S_IREAD)
    replace(new, old)
    assert old.read_text() == "new"
    os.chmod(old, stat.S_IREAD)
    remove(old)
    remove(old)  # there is none
    assert list(tmp_path.iterdir()) == []


def test_a_tree_goes_with_its_read_only_files(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / "file").write_text("x")
        os.chmod(tmp_path / "tree" / name / "file", stat.S_IREAD)
    remove_tree(tmp_path / "tree")
    remove_tree(tmp_path / "tree")
    assert list(tmp_path.iterdir()) == []


def test_an_error_that_does_not_pass_is_raised_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(FileNotFoundError):
        replace(tmp_path / "none", tmp_path / "there")
    assert time.monotonic() - began < WAIT_SECONDS


@on_windows
@pytest.mark.parametrize("what", ["replace", "remove", "remove_tree"])
def test_a_file_that_is_open_for_a_moment_is_waited_for(what: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    target, source = folder / "target", tmp_path / "source"
    for path in (target, source):
        path.write_text(path.name)
    scanner = target.open()
    threading.Timer(0.3, scanner.close).start()
    if what == "replace":
        replace(source, target)
        assert target.read_text() == "source"
    elif what == "remove":
        remove(target)
        assert not target.exists()
    else:
        remove_tree(folder)
        assert not folder.exists()


@on_windows
def test_a_file_that_stays_open_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "file"
    path.write_text("x")
    with path.open():
        with pytest.raises(PermissionError):
            remove_tree(tmp_path / "folder")
        remove_tree(tmp_path / "folder", ignore_errors=True)
        assert path.exists()


def test_who_has_a_file_open(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    assert holders(path) == ()
    with path.open():
        # Empty where the system does not tell (Linux, and Wine's Restart Manager).
        assert all(str(os.getpid()) in one for one in holders(path))


def test_the_structure_is_that_of_windows() -> None:
    import ctypes

    assert ctypes.sizeof(ProcessInfo) == 668
    assert ProcessInfo.application.offset == 12
    assert ProcessInfo.service.offset == 12 + 512


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of a file's size")
def test_a_file_to_which_not_all_can_be_appended_keeps_its_bytes(tmp_path: Path) -> None:
    import resource

    file = tmp_path / "a.toml"
    file.write_bytes(b"old\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6, before[1]))
    try:
        with pytest.raises(OutputError, match="space"):
            append_file(file, b"new text\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_bytes() == b"old\n"
    append_file(file, b"new text\n")
    assert file.read_bytes() == b"old\nnew text\n"
