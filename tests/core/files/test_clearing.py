"""Folders that a stranger filled are removed, and nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dmlprep.core.files import remove_tree
from tests.system import not_on_windows

pytestmark = not_on_windows("links, modes and depths as here are Linux's")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the user's that must stay as it is."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text("mine")
    (folder / "file").chmod(0o640)
    folder.chmod(0o750)
    return folder


def unharmed(folder: Path) -> bool:
    modes = [path.stat().st_mode & 0o777 for path in (folder, folder / "file")]
    return modes == [0o750, 0o640] and (folder / "file").read_text() == "mine"


def nest(top: Path, depth: int) -> None:
    """Folders within each other, by steps: the whole path is longer than a path may be."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 50, dir_fd=here)
        below = os.open("d" * 50, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    with open(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here), "w") as file:
        file.write("x")
    os.close(here)


def test_links_are_removed_and_not_followed(tmp_path: Path, outside: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "folder").symlink_to(outside)
    (top / "file").symlink_to(outside / "file")
    (top / "loop").symlink_to(top)
    os.link(outside / "file", top / "hard")
    remove_tree(top)
    assert not top.exists()
    assert unharmed(outside)
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(OSError, match="link"):
        remove_tree(tmp_path / "link")
    remove_tree(tmp_path / "link", ignore_errors=True)
    assert unharmed(outside)


@pytest.mark.parametrize("depth", [2 * sys.getrecursionlimit()])
def test_folders_deeper_than_the_stack(tmp_path: Path, outside: Path, depth: int) -> None:
    top = tmp_path / "top"
    top.mkdir()
    nest(top, depth)
    (top / "link").symlink_to(outside)
    remove_tree(top)
    assert not top.exists()
    assert unharmed(outside)


def test_folders_that_nobody_may_enter(tmp_path: Path, outside: Path) -> None:
    """As root nothing is closed: the test says less then."""
    top = tmp_path / "top"
    (top / "closed/inner").mkdir(parents=True)
    (top / "closed/inner/file").write_text("x")
    (top / "closed/link").symlink_to(outside)
    (top / "closed/inner").chmod(0)
    (top / "closed").chmod(0)
    remove_tree(top)
    assert not top.exists()
    assert unharmed(outside)
