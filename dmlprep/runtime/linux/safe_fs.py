"""Access files below one folder without following links, because downloaded files may include hostile ones.

Each folder on a path is opened from its parent (``openat`` with ``O_NOFOLLOW``), and every action uses the open folder.
So an attacker cannot replace a folder between the check and the use.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # missing on Windows, where this module is imported but not used
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NOFOLLOW | getattr(os, "O_CLOEXEC", 0)
_FILE = _NOFOLLOW | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)

_TRIES = 20  # retries to make a path that other threads make as well

_Result = TypeVar("_Result")


class LeadsOut(Exception):
    """A path leaves its folder, or a file is of the wrong kind."""


class Beneath:
    """Access to the files below ``folder``. Paths are relative to it, with ``/``. Each thread needs its own object.

    Raises:
        LeadsOut: (all methods) a folder of the path is a link, a part is ``..``, or the file is of the wrong kind.
        OSError: (all methods) the system reports an error.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._top = self._step(None, str(folder), folder.name)
        self._last: tuple[str, int] = ("", self._top)

    def __enter__(self) -> Beneath:
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()
        os.close(self._top)

    def _forget(self) -> None:
        if self._last[1] != self._top:
            os.close(self._last[1])
        self._last = ("", self._top)

    def _open(self, path: str, *, make: bool) -> int:
        """Return the descriptor of the folder ``path``, which stays open until the next call.

        With ``make``, missing folders are made.
        """
        if path == self._last[0]:
            return self._last[1]
        at = os.dup(self._top)
        try:
            for name in path.split("/") if path else ():
                below = self._step(at, name, path, make=make)
                os.close(at)
                at = below
        except BaseException:
            os.close(at)
            raise
        self._forget()
        self._last = (path, at)
        return at

    def _step(self, at: int | None, name: str, path: str, *, make: bool = False) -> int:
        try:
            return os.open(name, _FOLDER, dir_fd=at)
        except FileNotFoundError:
            if not make:
                raise
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise LeadsOut(f"{path} is outside {self._folder.name}: {name} is a link, or a file") from None
            raise
        with contextlib.suppress(FileExistsError):  # another thread was faster
            os.mkdir(name, 0o755, dir_fd=at)
        return self._step(at, name, path)

    def _place(self, path: str, *, make: bool = False) -> tuple[int, str]:
        self._check(path)
        parent, _, name = path.rpartition("/")
        return self._open(parent, make=make), name

    def _check(self, path: str) -> None:
        if "\0" in path or not {"", ".", ".."}.isdisjoint(path.split("/")):
            raise LeadsOut(f"{path!r} is outside {self._folder.name}")

    def make(self, path: str) -> None:
        """Make a folder and its parents, if they do not exist."""
        self._check(path)
        self._open(path, make=True)

    def stat(self, path: str) -> os.stat_result | None:
        """Return the status of a file or folder, or of a link itself; ``None`` if the path does not exist."""
        try:
            at, name = self._place(path)
            return os.stat(name, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _is(self, path: str, kind: Callable[[int], bool]) -> bool:
        status = self.stat(path)
        return status is not None and kind(status.st_mode)

    def files(self) -> list[str]:
        """Return the paths of everything below the folder, except folders and links to folders."""
        walk = os.fwalk(".", dir_fd=self._top, follow_symlinks=False)
        return [f"{folder}/{name}".removeprefix("./") for folder, _, names, _ in walk for name in names]

    def clear(self, path: str) -> None:
        """Make room for a new file: remove the file or link at this path, if it exists, and make its parent folder."""
        at, name = self._place(path, make=True)
        try:
            os.unlink(name, dir_fd=at)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError) as error:
            if self._is(path, stat.S_ISDIR):
                raise LeadsOut(f"{path} is a folder, not a file") from error
            raise

    def _in_place(self, path: str, make: Callable[[int, str], _Result]) -> _Result:
        """Replace a path by what ``make`` creates, and return the result of ``make``.

        ``make`` gets the descriptor of the parent folder and the name. It fails if the path exists (FileExistsError).
        Another thread may make the same path, because two packages may contain the same file. The last one remains.
        """
        for _ in range(_TRIES):
            self.clear(path)
            with contextlib.suppress(FileExistsError):
                return make(*self._place(path))
        raise LeadsOut(f"{path} reappears each time that dmlprep removes it")

    @contextlib.contextmanager
    def create(self, path: str, mode: int = 0o644) -> Iterator[BinaryIO]:
        """Open a new file to write, for a ``with`` block.

        It replaces an existing file or link, and never writes to the target of a link.
        """
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
        file = self._in_place(path, lambda at, name: os.open(name, new, 0o600, dir_fd=at))
        with os.fdopen(file, "wb") as out:
            yield out
            os.fchmod(file, mode)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link at ``path``, which replaces an existing file. No method of this class follows it."""
        self._in_place(path, lambda at, name: os.symlink(target, name, dir_fd=at))

    def hardlink(self, path: str, target: str) -> None:
        """Make ``path`` a second name of the file ``target``; an existing file at ``path`` is replaced."""
        if not self._is(target, stat.S_ISREG):
            raise LeadsOut(f"{target} is not a file, so {path} cannot be a hard link to it")
        # Both folders must be open at the same time.
        with Beneath(self._folder) as other:
            source, source_name = other._place(target)

            def make(at: int, name: str) -> None:
                os.link(source_name, name, src_dir_fd=source, dst_dir_fd=at, follow_symlinks=False)

            self._in_place(path, make)

    @contextlib.contextmanager
    def read(self, path: str) -> Iterator[BinaryIO]:
        """Open a regular file to read, for a ``with`` block: no link, no device, and no pipe, which would never end."""
        at, name = self._place(path)
        try:
            file = os.open(name, os.O_RDONLY | _FILE, dir_fd=at)
        except OSError as error:
            if self._is(path, stat.S_ISLNK):
                raise LeadsOut(f"{path} is a link, not a file") from error
            raise
        with os.fdopen(file, "rb") as opened:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise LeadsOut(f"{path} is not a file")
            yield opened
