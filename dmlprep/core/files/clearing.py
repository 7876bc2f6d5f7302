"""Remove a folder, whatever an untrusted program left in it.

The usual functions fail on folders without permissions, and on folders that are nested too deeply. Then, on Linux, the
folder is emptied step by step. Every step starts at the descriptor of a folder and follows no link. A nested folder is
first moved to the top, so that there are never more than two levels.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

from dmlprep.portable import replacing


def remove_tree(folder: Path, *, ignore_errors: bool = False) -> None:
    """Remove a folder with its content, if it exists; on Linux, even if an untrusted program filled it.

    On Linux, nesting of any depth and missing permissions are handled. No link is followed. With ``ignore_errors``,
    entries that cannot be removed stay.

    Raises:
        OSError: an entry cannot be removed, and ``ignore_errors`` is not set.
    """
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
                        os.close(_enter(inner, below))  # a folder that cannot be written cannot be moved
                        waiting.append(os.urandom(16).hex())
                        os.rename(inner, waiting[-1], src_dir_fd=below, dst_dir_fd=top)
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(folder)


def _gone_as_file(name: str, folder: int) -> bool:
    """Remove an entry of a folder, given as a descriptor, unless the entry is itself a folder.

    Return ``True`` if the entry is removed or did not exist, ``False`` if it is a folder.
    """
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return False
        os.unlink(name, dir_fd=folder)
    return True


def _enter(name: str, folder: int | None) -> int:
    """Open a folder by its name in ``folder`` (a descriptor, or ``None`` for a path), and give its owner all rights.

    Return the descriptor of the opened folder. A link is not followed, but an error.
    """
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    # This descriptor needs no rights, and identifies the folder in the next two steps.
    path = os.open(name, flags | os.O_PATH, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{path}", stat.S_IRWXU)
        return os.open(".", flags | os.O_RDONLY, dir_fd=path)
    finally:
        os.close(path)
