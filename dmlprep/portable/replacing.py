"""Rename and remove files, with the short waits that Windows needs.

Windows cannot rename or remove a file that is open in a program. Virus scanners, search indexers and backup programs
open a new file for some 100 ms. A process that was just ended keeps its files open a little longer. So each call
retries for ``WAIT_SECONDS`` on Windows. On other systems no call waits.
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
"""Seconds that a call waits for a file that is open in another program."""

_PAUSE_SECONDS = 0.05

_BUSY = (5, 32, 33, 145)
"""Windows errors that may be temporary. 5: access denied (a pending removal, or a read-only file). 32: sharing
violation. 33: lock violation. 145: folder not empty (a file in it is being removed)."""


def replace(source: Path, target: Path) -> None:
    """Rename ``source`` to ``target``. An existing file is replaced, even a read-only one, as on Linux.

    Raises:
        OSError: the rename failed, or on Windows one of the two files stayed open in another program.
    """
    _retry(lambda: os.replace(source, target), target)


def rename_new(source: Path, target: Path) -> None:
    """Rename ``source`` to ``target``, which must not exist.

    Raises:
        FileExistsError: ``target`` exists.
        OSError: the rename failed, or on Windows the file stayed open in another program.
    """
    if sys.platform == "win32":
        _retry(lambda: os.rename(source, target), target)  # on Windows, os.rename never replaces a file
        return
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a folder, or no hard links: then a check directly before the rename is the best possible
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(target)) from None
        os.rename(source, target)
    else:
        os.unlink(source)


def remove(path: Path) -> None:
    """Remove a file, if it exists; a read-only one too.

    Raises:
        OSError: the removal failed, or on Windows the file stayed open in another program.
    """
    _retry(lambda: path.unlink(missing_ok=True), path)


def remove_tree(folder: Path, *, ignore_errors: bool = False) -> None:
    """Remove a folder with its content, if it exists. With ``ignore_errors``, skip files that cannot be removed.

    Raises:
        OSError: a file in it cannot be removed, or on Windows stayed open in another program.
    """

    def attempt() -> None:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            if folder.exists():  # another process removed a file in it meanwhile
                shutil.rmtree(folder)

    try:
        _retry(attempt, folder)
    except OSError:
        if not ignore_errors:
            raise
        shutil.rmtree(folder, ignore_errors=True)


def check_free(path: Path) -> None:
    """Check that an existing file can be renamed now. Only Windows prevents that, if a program has the file open.

    Raises:
        OSError: the file stayed open in another program.
    """
    if sys.platform == "win32":
        _retry(lambda: os.rename(path, path), path)  # Windows opens the file for this, and changes nothing


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
    """Make a file writable if it is read-only; return ``True`` only if it was read-only and is now writable."""
    try:
        if os.lstat(path).st_mode & stat.S_IWRITE:
            return False
        os.chmod(path, stat.S_IWRITE)
    except OSError:
        return False
    return True
