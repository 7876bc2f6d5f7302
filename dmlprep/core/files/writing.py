"""Write files atomically, one or several together."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import BinaryIO

from dmlprep.core.errors import OutputError
from dmlprep.core.files.exchange import FileSet
from dmlprep.core.files.reasons import unreadable, unwritable
from dmlprep.core.files.run_folder import noted, run_name
from dmlprep.portable.replacing import remove, rename_new, replace


class Writer:
    """Write files next to their targets, then rename them all: ``with Writer() as w: w.open(path) ...; w.commit()``.

    Leaving the block without ``commit``, by any exception or Ctrl-C, removes the new files. Several files must be in
    one folder, and are replaced together (``core.files.exchange``); the last one opened is their head.
    """

    def __init__(self) -> None:
        self._open: list[tuple[Path, Path, BinaryIO]] = []
        self._begun = contextlib.ExitStack()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for temporary, _target, file in self._open:
            with contextlib.suppress(OSError):  # closing writes the buffer, which fails on a full disk
                file.close()
            with contextlib.suppress(OSError):
                remove(temporary)
        self._open.clear()
        self._begun.__exit__(kind, error, trace)

    def open(self, target: Path) -> BinaryIO:
        """Open a new temporary file for writing; ``commit`` renames it to ``target``.

        Raises:
            OSError: it cannot be made, for example because the folder is missing.
        """
        # A short name, whatever the target's name is: names and paths have limits.
        digest = hashlib.sha256(target.name.encode("utf-8", "replace")).hexdigest()
        temporary = target.with_name(f".dmlprep-{run_name()}-{digest[:8]}.part")
        self._begun.enter_context(noted("staging", folder=os.path.abspath(target.parent), made=[]))
        file = open(temporary, "xb")  # noqa: SIM115 - closed in commit or __exit__
        self._open.append((temporary, target, file))
        return file

    def adopt(self, path: Path, target: Path) -> BinaryIO:
        """Open a whole file of the same file system for reading; ``commit`` renames it to ``target``.

        Raises:
            OSError: it cannot be opened.
        """
        file = path.open("rb")
        self._open.append((path, target, file))
        return file

    def commit(
        self,
        gone: Collection[str] = (),
        *,
        force: bool = True,
        folders: Mapping[str, Path | None] = MappingProxyType({}),
    ) -> None:
        """Rename every file to its target, and remove the files ``gone`` from the folder of the last target.

        Args:
            gone: names of files of the old result that the new one lacks.
            force: replace existing files; without it never, even if they appeared after the command's check.
            folders: by name, whole folders of the result, which are moved there; ``None`` if the new result lacks it.
                An old folder of this name is replaced, with all its content.

        Raises:
            OutputError: a file cannot be replaced; for several files, as ``FileSet.exchange``.
            OSError: the disk is full.
        """
        for _, _, file in self._open:
            file.close()
        if not self._open:
            return
        head = self._open[-1][1]
        new = {target.name: temporary for temporary, target, _ in self._open}
        new |= {name: path for name, path in folders.items() if path is not None}
        others = tuple(name for name in (*new, *gone, *folders) if name != head.name)
        if others:
            FileSet(head.parent, head.name, others, tuple(folders)).exchange(new, force=force)
        else:
            with plain_errors(head):
                (replace if force else rename_new)(new[head.name], head)
        self._open.clear()


@contextlib.contextmanager
def plain_errors(target: Path, sources: Collection[Path] = ()) -> Iterator[None]:
    """Turn an ``OSError`` of the block into an ``OutputError`` about ``target``.

    If the error names one of the paths ``sources``, it becomes an ``InputError`` about that path.
    """
    try:
        yield
    except FileExistsError as error:
        raise OutputError("the file exists", where=str(target), fix="pass --force to replace it") from error
    except OSError as error:
        if error.filename is not None and Path(error.filename) in sources:
            raise unreadable(error, Path(error.filename)) from error
        raise unwritable(error, target) from error


def write_file(path: Path, content: bytes, *, force: bool = True) -> None:
    """Write a small file atomically; with ``force``, replace an existing one.

    Raises:
        OutputError: the path cannot be written, or the file exists without ``force``.
    """
    with plain_errors(path), Writer() as writer:
        writer.open(path).write(content)
        writer.commit(force=force)


def append_file(path: Path, content: bytes) -> None:
    """Append to an existing file. If the disk is full, the file stays unchanged.

    Raises:
        OutputError: the file cannot be written.
    """
    with plain_errors(path), open(path, "r+b", buffering=0, opener=_at_the_end) as file:
        end = file.seek(0, os.SEEK_END)
        if file.write(content) != len(content):
            file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _at_the_end(path: str, flags: int) -> int:
    """Open a file whose writes go to its end, even if another program appends at the same time."""
    return os.open(path, flags | os.O_APPEND)


def write_private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read (mode 0600; on Windows the folder's permissions apply).

    Raises:
        FileExistsError: the file exists.
        OutputError: it cannot be written.
    """
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        try:
            os.write(file, content)
        except OSError:
            os.close(file)
            remove(path)
            raise
        os.close(file)
    except FileExistsError:
        raise
    except OSError as error:
        raise unwritable(error, path) from error
