"""Files below one folder, reached without following any link: what was fetched may have planted some.

Each folder on a path is opened from the one above it (``openat`` with ``O_NOFOLLOW``), and what is done is done in the
folder that is open: there is no moment between a check and a use.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # these three are not there on Windows, where nothing here is called
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NOFOLLOW | getattr(os, "O_CLOEXEC", 0)
_FILE = _NOFOLLOW | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)

_TRIES = 20  # to make a path that others make as well

_Made = TypeVar("_Made")


class LeadsOut(Exception):
    """A path that does not stay below its folder, or something there that is not what it should be."""


class Beneath:
    """The files below ``folder``; paths have ``/``, and are relative to it. Each thread opens its own.

    Raises:
        LeadsOut: (all methods) a part of the path is a link, or ``..``, or what stands there is of another kind.
        OSError: (all methods) what the system says.
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
        """The folder ``path``; stays open until the next one is asked for."""
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
        """Make a folder, and those above it, where they are not there."""
        self._check(path)
        self._open(path, make=True)

    def stat(self, path: str) -> os.stat_result | None:
        """What stands there, of a link its own; ``None`` where nothing does."""
        try:
            at, name = self._place(path)
            return os.stat(name, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _is(self, path: str, kind: Callable[[int], bool]) -> bool:
        status = self.stat(path)
        return status is not None and kind(status.st_mode)

    def files(self) -> list[str]:
        """The paths of all that is no folder."""
        walk = os.fwalk(".", dir_fd=self._top, follow_symlinks=False)
        return [f"{folder}/{name}".removeprefix("./") for folder, _, names, _ in walk for name in names]

    def clear(self, path: str) -> None:
        """Remove a file or a link, where one is; its folder is made."""
        at, name = self._place(path, make=True)
        try:
            os.unlink(name, dir_fd=at)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError) as error:
            if self._is(path, stat.S_ISDIR):
                raise LeadsOut(f"{path} is a folder, not a file") from error
            raise

    def _in_place(self, path: str, make: Callable[[int, str], _Made]) -> _Made:
        """What ``make`` makes at a path (folder and name), in place of what stands there.

        ``make`` refuses what is there (FileExistsError). Another thread may make the same path, since two packages may
        hold the same file: the last one stays.
        """
        for _ in range(_TRIES):
            self.clear(path)
            with contextlib.suppress(FileExistsError):
                return make(*self._place(path))
        raise LeadsOut(f"{path} reappears each time that dmlprep removes it")

    @contextlib.contextmanager
    def create(self, path: str, mode: int = 0o644) -> Iterator[BinaryIO]:
        """A new file to write, in place of what stands there; it has the name only of what was just made."""
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
        file = self._in_place(path, lambda at, name: os.open(name, new, 0o600, dir_fd=at))
        with os.fdopen(file, "wb") as out:
            yield out
            os.fchmod(file, mode)

    def link(self, path: str, target: str) -> None:
        """A symbolic link in place of what stands there; nothing here follows it."""
        self._in_place(path, lambda at, name: os.symlink(target, name, dir_fd=at))

    def hardlink(self, path: str, target: str) -> None:
        """A second name of the file ``target``, in place of what stands there."""
        if not self._is(target, stat.S_ISREG):
            raise LeadsOut(f"{target} is not a file, so {path} cannot be another name of it")
        # Both folders are needed at the same time.
        with Beneath(self._folder) as other:
            source, source_name = other._place(target)

            def make(at: int, name: str) -> None:
                os.link(source_name, name, src_dir_fd=source, dst_dir_fd=at, follow_symlinks=False)

            self._in_place(path, make)

    @contextlib.contextmanager
    def read(self, path: str) -> Iterator[BinaryIO]:
        """A file to read: a file, no link, no device, no pipe that would never end."""
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
