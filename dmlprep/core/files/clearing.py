"""Remove a folder whatever a stranger left in it.

The usual way fails on folders that nobody may enter, and on folders nested more deeply than names, descriptors or the
stack reach. Then, on Linux, the folder is emptied by hand: every step starts at the descriptor of a folder and follows
no link, and a folder inside a folder is first moved up to the top, so that there are never more than two levels.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

from dmlprep.portable import replacing


def remove_tree(folder: Path, *, ignore_errors: bool = False) -> None:
    """``portable.replacing.remove_tree``, and on Linux whatever a stranger left in the folder; no link is followed."""
    if not sys.platform.startswith("linux"):
        replacing.remove_tree(folder, ignore_errors=ignore_errors)
        return
    try:
        replacing.remove_tree(folder)
    except (OSError, RecursionError):
        try:
            _clear(folder)
        except OSError:
            if not ignore_errors:
                raise
            with contextlib.suppress(RecursionError):
                replacing.remove_tree(folder, ignore_errors=True)


def _clear(folder: Path) -> None:
    top = _enter(os.fspath(folder), None)
    try:
        waiting = os.listdir(top)
        while waiting:
            name = waiting.pop()
            if _gone_as_file(name, top):
                continue
            below = _enter(name, top)
            try:
                for inner in os.listdir(below):
                    if not _gone_as_file(inner, below):
                        os.close(_enter(inner, below))  # what cannot be written cannot be moved
                        waiting.append(os.urandom(16).hex())
                        os.rename(inner, waiting[-1], src_dir_fd=below, dst_dir_fd=top)
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(folder)


def _gone_as_file(name: str, folder: int) -> bool:
    """Whether it was no folder, and is removed."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return False
        os.unlink(name, dir_fd=folder)
    return True


def _enter(name: str, folder: int | None) -> int:
    """A descriptor of a folder, made one that its owner may read and write."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    # This one is had without rights, and names the folder in the next two steps.
    path = os.open(name, flags | os.O_PATH, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{path}", stat.S_IRWXU)
        return os.open(".", flags | os.O_RDONLY, dir_fd=path)
    finally:
        os.close(path)
