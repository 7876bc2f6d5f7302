"""Mark folders as in use by a living process, with a locked file in each.

A process holds a folder while it has this file locked. The system unlocks the file when the process ends, even after a
crash. So a folder with an unlocked file is the leftover of a killed run.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from .replacing import remove, remove_tree

LOCK = "lock"
"""The name of the locked file in a folder."""

_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)

_TRIES = 100

_holding: dict[str, Held] = {}
"""The folders that this process holds, by absolute path."""


class Held:
    """A folder that this process holds: the descriptor of the locked file is open."""

    def __init__(self, path: Path, file: int) -> None:
        self.path = path
        self._file: int | None = file
        _holding[os.path.abspath(path)] = self

    def release(self) -> None:
        """Unlock the folder, without removing it. The next cleanup may then remove it."""
        file, self._file = self._file, None
        if file is not None:
            _holding.pop(os.path.abspath(self.path), None)
            os.close(file)

    def remove(self) -> None:
        """Remove the folder with its content, and release it."""
        _empty(self.path)
        self.release()  # Windows cannot remove an open file
        remove_tree(self.path, ignore_errors=True)


def hold_new(parent: Path, prefix: str, length: int = 8, keep: Callable[[Held], object] = lambda held: None) -> Held:
    """Make a folder that only this user can read, and hold it. Its name is ``prefix`` and ``length`` random hex digits.

    Another process's cleanup may remove the folder before it is locked; then another one is created. ``keep`` is called
    with the held folder. If the process is stopped before that, the folder is removed.

    Raises:
        OSError: no folder can be made.
    """
    for _ in range(_TRIES):
        path = parent / f"{prefix}{os.urandom(length // 2).hex()}"
        is_new, file, own = False, -1, None
        try:
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                continue
            is_new = True
            try:
                file = os.open(path / LOCK, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
            except FileNotFoundError:
                continue
            if _lock(file) is not False and _is(file, path / LOCK):
                own = Held(path, file)
                keep(own)
                return own
            os.close(file)
        except BaseException:  # Ctrl-C and SIGTERM too, before any caller knows the folder
            with contextlib.suppress(OSError):
                if own is not None:
                    own.remove()
                elif not is_new:
                    path.rmdir()  # it is empty, if it exists
                elif file >= 0:
                    os.close(file)  # Windows would keep an open file, and its folder
            if is_new:
                remove_tree(path, ignore_errors=True)
            raise
    raise FileExistsError(f"cannot create a folder {prefix}... in {parent}")


def let_go(path: Path) -> None:
    """Release a folder if this process holds it, so that it can be removed on Windows."""
    mine = _holding.get(os.path.abspath(path))
    if mine is not None:
        mine.release()


def clear_left(parent: Path, prefix: str, undo: Callable[[Path], None] = lambda folder: None) -> None:
    """Remove leftover folders in ``parent`` whose names begin with ``prefix``.

    Folders that a living process holds, folders of other users, and links stay. ``undo`` is called with each folder
    before its removal, unless the folder is empty. No other process removes the folder meanwhile.
    """
    try:
        names = [name for name in os.listdir(parent) if name.startswith(prefix)]
    except OSError:
        return
    for path in (parent / name for name in names):
        if not own_folder(path):
            continue
        with contextlib.suppress(OSError):  # the leftover of a run that was killed before it locked the folder
            path.rmdir()
            continue
        with held(path) as mine:
            if mine:
                undo(path)
                _empty(path)
        if mine:  # Windows cannot remove an open file
            remove_tree(path, ignore_errors=True)


def _empty(folder: Path) -> None:
    """Remove everything in a held folder but its lock file, without which another process would take it for free."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name == LOCK:
                continue
            if path.is_dir() and not path.is_symlink():
                remove_tree(path, ignore_errors=True)
            else:
                remove(path)


def own_folder(path: Path) -> bool:
    """Return whether the path is a folder of this user, and not a link."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    own = sys.platform == "win32" or status.st_uid == os.geteuid()
    return own and os.path.isdir(path) and not os.path.islink(path)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Try to lock a folder during a ``with`` block; yield ``True`` if no other process holds it, otherwise ``False``.

    A missing lock file is made. On a file system without locks, the result is ``True`` only if the lock file is new.
    """
    path = folder / LOCK
    fresh = not os.path.lexists(path)
    try:
        file = os.open(path, _FLAGS | os.O_CREAT, 0o600)
    except OSError:
        yield fresh
        return
    try:
        locked = _lock(file)
        yield fresh if locked is None else locked
    finally:
        os.close(file)


def _is(file: int, path: Path) -> bool:
    """Return whether the path still names the open file."""
    if sys.platform == "win32":
        return True  # Windows cannot remove an open file
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except OSError:
        return False


def _lock(file: int) -> bool | None:
    """Lock a file; return whether that succeeded, or ``None`` on a file system without locks."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return False if sys.platform == "win32" else None
    return True
