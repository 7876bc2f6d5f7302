"""Folders that a program in the sandbox may write to, before and after; and pieces that it may read.

A user's program is that user, so there is little to do. Root's is another user (``sandbox.WORKER``), who must own what
it writes to; and what is read must be readable for all, whatever root's umask was.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dmlprep.core.files import remove_tree
from dmlprep.runtime.linux import sandbox

_DEPTH = 64
"""Folders within folders that are gone through. Wine makes 12."""


def lend(*folders: Path) -> None:
    """Make folders of this process's the program's; what is in them stays as it is."""
    if sandbox.becomes_worker():
        for folder in folders:
            os.chown(folder, sandbox.WORKER, sandbox.WORKER)


def fresh(folder: Path) -> Path:
    """An empty folder that is lent; one that was there is removed."""
    remove_tree(folder)
    folder.mkdir()
    folder.chmod(0o755)
    lend(folder)
    return folder


def take_back(folder: Path) -> None:
    """Make what a program that has ended left in a lent folder this user's, and plain.

    No link is followed. Bits that would give the owner's rights to others, or let others write, are cleared.

    Raises:
        OSError: it cannot be changed, is nested too deep, or holds what is neither file, folder nor link.
    """
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _take_back(here, 0)
    finally:
        os.close(here)


def _take_back(here: int, depth: int) -> None:
    if depth > _DEPTH:
        raise OSError(f"folders are nested more than {_DEPTH} deep")
    _plain(here)
    for name in os.listdir(here):
        mode = os.stat(name, dir_fd=here, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            os.chown(name, os.geteuid(), os.getegid(), dir_fd=here, follow_symlinks=False)
            continue
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise OSError(f"{name} is neither a file nor a folder")
        entry = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here)
        try:
            if stat.S_ISDIR(mode):
                _take_back(entry, depth + 1)
            else:
                _plain(entry)
        finally:
            os.close(entry)


def _plain(entry: int) -> None:
    mode = stat.S_IMODE(os.fstat(entry).st_mode)
    os.fchown(entry, os.geteuid(), os.getegid())
    if mode & ~0o755:
        os.fchmod(entry, mode & 0o755)


def open_to_all(folder: Path) -> None:
    """Let every user read a piece and all that is in it."""
    for path, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            entry = Path(path, name)
            mode = entry.lstat().st_mode
            wanted = 0o555 if stat.S_ISDIR(mode) else 0o444
            if not stat.S_ISLNK(mode) and mode & wanted != wanted:
                entry.chmod(stat.S_IMODE(mode) | wanted)
