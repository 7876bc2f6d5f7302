"""Rename and remove files, with the short waits that Windows needs.

On Windows a file that is open in a program can be neither renamed nor removed. Virus scanners, search indexers and
backup programs open a fresh file for some 100 ms, and a process that was just ended holds its files a little longer.
So each call here tries again for ``WAIT_SECONDS`` before it gives up. Elsewhere nothing waits.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

WAIT_SECONDS = 2.0
"""How long a file may stay open elsewhere before a call here gives up, in seconds."""

_PAUSE_SECONDS = 0.05

_BUSY = (5, 32, 33, 145)
"""Windows' error numbers that can pass: access denied (a removal is pending, or a read-only file), sharing violation,
lock violation, folder not empty (a file in it is being removed)."""


def replace(source: Path, target: Path) -> None:
    """Rename ``source`` to ``target``; a file that is there is replaced, a read-only one too, as on Linux.

    Raises:
        OSError: it failed, or on Windows one of the two stayed open elsewhere.
    """
    _retry(lambda: os.replace(source, target), target)


def rename_new(source: Path, target: Path) -> None:
    """Rename ``source`` to ``target``, where nothing is there.

    Raises:
        FileExistsError: something is there.
        OSError: it failed, or on Windows the file stayed open elsewhere.
    """
    if sys.platform == "win32":
        _retry(lambda: os.rename(source, target), target)  # which replaces nothing there
        return
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a folder, or a file system without hard links: nothing in between is all that can be had
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(target)) from None
        os.rename(source, target)
    else:
        os.unlink(source)


def remove(path: Path) -> None:
    """Remove a file, where there is one; a read-only one too.

    Raises:
        OSError: it failed, or on Windows the file stayed open elsewhere.
    """
    _retry(lambda: path.unlink(missing_ok=True), path)


def remove_tree(folder: Path, *, ignore_errors: bool = False) -> None:
    """Remove a folder and all that is in it, where there is one; ``ignore_errors``: leave what cannot be removed.

    Raises:
        OSError: something in it cannot be removed, or on Windows stayed open elsewhere.
    """

    def attempt() -> None:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            if folder.exists():  # somebody else removed a file of it meanwhile
                shutil.rmtree(folder)

    try:
        _retry(attempt, folder)
    except OSError:
        if not ignore_errors:
            raise
        shutil.rmtree(folder, ignore_errors=True)


def check_free(path: Path) -> None:
    """Whether an existing file can be renamed now: on Windows a program that has it open prevents that.

    Raises:
        OSError: the file stayed open elsewhere.
    """
    if sys.platform == "win32":
        _retry(lambda: os.rename(path, path), path)  # Windows opens the file for that, and then changes nothing


def _retry(act: Callable[[], object], path: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            act()
        except OSError as error:
            if getattr(error, "winerror", None) not in _BUSY or time.monotonic() >= deadline:
                raise
            if not _made_writable(Path(error.filename2 or error.filename or path)):
                time.sleep(_PAUSE_SECONDS)
        else:
            return


def _made_writable(path: Path) -> bool:
    """Whether a read-only file was in the way, and is no longer read-only."""
    try:
        if os.lstat(path).st_mode & stat.S_IWRITE:
            return False
        os.chmod(path, stat.S_IWRITE)
    except OSError:
        return False
    return True
