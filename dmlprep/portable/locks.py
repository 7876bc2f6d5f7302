"""Folders that a living process holds, by a locked file in them: the system unlocks it when the process ends, whatever
ends it. So a folder that nobody holds is what a killed run left.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from .replacing import remove_tree

LOCK = "lock"
"""The file that is locked."""

_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)

_TRIES = 100

_holding: dict[str, Held] = {}
"""What this process holds, by its absolute path."""


class Held:
    """A folder that this process holds by the descriptor of its locked file."""

    def __init__(self, path: Path, file: int) -> None:
        self.path = path
        self._file: int | None = file
        _holding[os.path.abspath(path)] = self

    def release(self) -> None:
        """Let it go: whoever looks next may remove it."""
        file, self._file = self._file, None
        if file is not None:
            _holding.pop(os.path.abspath(self.path), None)
            os.close(file)

    def remove(self) -> None:
        """Remove it with all that is in it, and let it go."""
        if sys.platform == "win32":
            self.release()  # an open file cannot be removed there
        remove_tree(self.path, ignore_errors=True)
        self.release()


def hold_new(parent: Path, prefix: str, length: int = 8, keep: Callable[[Held], object] = lambda made: None) -> Held:
    """Make a folder that only this user reads, and hold it: its name is ``prefix`` and ``length`` random characters.

    Whoever sweeps may come between the two and take it for a left one: then another one is made. ``keep`` is called
    with the folder. Where the process is stopped before that, the folder is removed.

    Raises:
        OSError: it cannot be made.
    """
    for _ in range(_TRIES):
        path = parent / f"{prefix}{os.urandom(length // 2).hex()}"
        made, file, own = False, -1, None
        try:
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                continue
            made = True
            try:
                file = os.open(path / LOCK, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
            except FileNotFoundError:
                continue
            if _lock(file) is not False and _is(file, path / LOCK):
                own = Held(path, file)
                keep(own)
                return own
            os.close(file)
        except BaseException:  # Ctrl-C and SIGTERM too, before anything knows of the folder
            with contextlib.suppress(OSError):
                if own is not None:
                    own.remove()
                elif not made:
                    path.rmdir()  # made or not: it is empty
                elif file >= 0:
                    os.close(file)  # an open file stays on Windows, and its folder with it
            if made:
                remove_tree(path, ignore_errors=True)
            raise
    raise FileExistsError(f"cannot create a folder {prefix}... in {parent}")


def let_go(path: Path) -> None:
    """Let a folder go, if this process holds it, whoever in it does: on Windows its file could not be removed."""
    mine = _holding.get(os.path.abspath(path))
    if mine is not None:
        mine.release()


def clear_left(parent: Path, prefix: str, undo: Callable[[Path], None] = lambda folder: None) -> None:
    """Remove the folders of this name that no living process holds: this user's only, and no links.

    ``undo`` is called with each before; nobody else removes it meanwhile.
    """
    try:
        names = [name for name in os.listdir(parent) if name.startswith(prefix)]
    except OSError:
        return
    for path in (parent / name for name in names):
        if not own_folder(path):
            continue
        with contextlib.suppress(OSError):  # of a run that was killed before it held it
            path.rmdir()
            continue
        with held(path, make=False) as mine:
            if mine:
                undo(path)
                if sys.platform != "win32":
                    remove_tree(path, ignore_errors=True)
        if mine and sys.platform == "win32":  # no open file can be removed there
            remove_tree(path, ignore_errors=True)


def own_folder(path: Path) -> bool:
    """Whether it is a folder of this user's, and no link."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    own = sys.platform == "win32" or status.st_uid == os.geteuid()
    return own and os.path.isdir(path) and not os.path.islink(path)


@contextlib.contextmanager
def held(folder: Path, *, make: bool = True) -> Iterator[bool]:
    """Lock a folder for this process; whether nobody else has it.

    Where a file system knows no locks, nobody else is said to have it only if the locked file is new. Without ``make``,
    a folder without that file is nobody's.
    """
    path = folder / LOCK
    fresh = not os.path.lexists(path)
    try:
        file = os.open(path, _FLAGS | (os.O_CREAT if make else 0), 0o600)
    except OSError:
        yield fresh
        return
    try:
        yield _lock(file) or fresh
    finally:
        os.close(file)


def _is(file: int, path: Path) -> bool:
    """Whether the open file still lies there."""
    if sys.platform == "win32":
        return True  # an open file cannot be removed there
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except OSError:
        return False


def _lock(file: int) -> bool | None:
    """Whether it could be locked; ``None`` where the file system knows no locks."""
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
