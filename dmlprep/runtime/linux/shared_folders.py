"""Prepare folders for a program in the sandbox: those that it may write, and the pieces that it may read.

A piece is a folder of the installed runtime. If a user starts the program, it runs as that user, so there is little to
do. If root starts it, it runs as another user (``sandbox.WORKER``). That user must own the folders that it writes. All
users must be able to read the pieces, whatever root's umask was.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dmlprep.core.files import remove_tree
from dmlprep.runtime.linux import sandbox

_DEPTH = 64
"""Limit for the depth of nested folders. Wine makes 12 levels."""


def lend(*folders: Path) -> None:
    """Make the sandboxed program's user the owner of these folders; their contents stay unchanged.

    If the program runs as this user, nothing is done.
    """
    if sandbox.becomes_worker():
        for folder in folders:
            os.chown(folder, sandbox.WORKER, sandbox.WORKER)


def fresh(folder: Path) -> Path:
    """Make the folder new and empty, lend it to the sandboxed program, and return it; an old one is removed."""
    remove_tree(folder)
    folder.mkdir()
    folder.chmod(0o755)
    lend(folder)
    return folder


def take_back(folder: Path) -> None:
    """Make this user the owner of everything in a lent folder, after the sandboxed program has ended.

    No link is followed. Permissions that would give the owner's rights to others, or let others write, are removed.

    Raises:
        OSError: it cannot be changed, is nested too deeply, or contains something other than files, folders and links.
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
    """Let every user read a folder and its content; other permissions stay unchanged."""
    for path, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            entry = Path(path, name)
            mode = entry.lstat().st_mode
            wanted = 0o555 if stat.S_ISDIR(mode) else 0o444
            if not stat.S_ISLNK(mode) and mode & wanted != wanted:
                entry.chmod(stat.S_IMODE(mode) | wanted)
