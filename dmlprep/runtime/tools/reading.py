"""Read third-party files in a child process: a library's crash, panic, decompression bomb or hang becomes an error."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from dmlprep.core.errors import InputError, UsageError
from dmlprep.core.files import Unfit, check_plain, unreadable
from dmlprep.process.failure import FULL, SessionFailure, disk_full
from dmlprep.process.starting import allowed_memory
from dmlprep.runtime.tools.extras import not_installed, require
from dmlprep.runtime.tools.kept_child import KeptChild, hand_over

MEMORY = 1536 << 20
"""Memory limit in bytes for one file: a picture of 512 MiB, its copy and the result; or a large tokenizer."""

SECONDS = 60.0
"""Time limit in seconds for one file. The largest allowed picture takes two."""

_FILE, _OUT, _IN = "file", "read.bin", "given.json"

_PIECE = 1 << 20

T = TypeVar("T")

_reader = KeptChild("reader_process.py", "the reader")


class Reading:
    """A reader of one kind of file in the child process.

    Args:
        module, package: the library that reads it, as a module and as a package for pip.
        purpose: for errors: ``reading pictures``.
        kind: for errors: ``a picture``.
        fix: the remedy for a file that cannot be read.
    """

    def __init__(self, module: str, package: str, purpose: str, kind: str, fix: str = "") -> None:
        self._module, self._package, self._purpose = module, package, purpose
        self._kind, self._fix = kind, fix or "check that it is the right file, or remove it"

    def ask(
        self,
        word: str,
        path: Path,
        arguments: Sequence[str],
        take: Callable[[list[int], Path], T],
        *,
        payload: object = None,
        limit: int | None = None,
        memory: int = MEMORY,
    ) -> T:
        """Let the child process read a file, and return what ``take`` makes of the answer.

        Args:
            word: the request, a key of ``WORK`` in ``reader_process.py``.
            arguments: the further arguments of the request, after the file names.
            take: returns the result, from the numbers of the answer and the file with the elements.
            payload: builtins that are sent with the request.
            limit: limit for the size of the file in bytes; ``None``: any size.
            memory: memory limit of the process in bytes.

        Raises:
            InputError: the file cannot be read, or exceeds its limit of time, memory or size.
            UsageError: the package is not installed.
            OutputError: the disk with the temporary files is full.
        """
        where = str(path)
        require(self._module, self._package, self._purpose)
        try:
            check_plain(path, limit)
        except OSError as error:
            raise unreadable(error, path) from error
        except Unfit as error:
            raise InputError(f"cannot be read as {self._kind}: {error}", where=where, fix=error.fix) from error
        allowed = allowed_memory().nbytes
        memory = min(memory, allowed) if allowed else memory
        try:
            with _reader.used() as child:
                out = child.exchange / _OUT
                # This is a copy, because the process may read no files of the user.
                _copy(path, child.exchange / _FILE)
                names = [_FILE, _OUT]
                if payload is not None:
                    hand_over(child.exchange / _IN, json.dumps(payload).encode("ascii"))
                    names.insert(1, _IN)
                request = [word, str(memory), *(str(child.exchange / name) for name in names), *arguments]
                answer = child.ask([request], limit=SECONDS, memory=memory, where=where)
                if answer[:1] == [["memory"]]:
                    raise SessionFailure("memory", "")
                head, *fields = answer[0] if len(answer) == 1 and answer[0] else [""]
                if head == "large" and len(fields) == 2 and fields[1].isdecimal():
                    raise too_large(fields[0], int(fields[1]), where)
                try:
                    result = take([int(field) for field in fields], out)
                except (ValueError, IndexError, OSError) as error:
                    raise SessionFailure("protocol", f"it returned no array: {error}") from error
                for name in (_FILE, _OUT):
                    with contextlib.suppress(OSError):
                        (child.exchange / name).unlink()
                return result
        except SessionFailure as failed:
            raise self._failed(failed, where, memory) from failed

    def _failed(self, failed: SessionFailure, where: str, memory: int) -> UsageError:
        why = failed.message
        if failed.kind == "load":
            return not_installed(self._package, self._purpose)
        if failed.kind == "memory" or "memory allocation of" in why:  # the second is Rust's
            why = f"it needs more than {_mib(memory)} of memory"
        elif failed.kind in ("timeout", "hang"):
            why = f"it needs more than {SECONDS:g} s"
        return InputError(f"cannot be read as {self._kind}: {why}", where=where, fix=self._fix)


def too_large(what: str, needed: int, where: str) -> InputError:
    """Return, without raising it, the error for a file whose content needs ``needed`` bytes, above the limit."""
    fix = f"make it smaller, or raise the limit: dmlprep --limit made_bytes={needed} COMMAND"
    return InputError(f"too large to read: {what} needs {_mib(needed)}", where=where, fix=fix)


def end() -> None:
    """End the reader process, if there is one; the next call starts another."""
    _reader.end()


def _copy(path: Path, to: Path) -> None:
    try:
        with path.open("rb") as file, to.open("wb") as copy:
            shutil.copyfileobj(file, copy, _PIECE)
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(to.parent, error) from error
        raise unreadable(error, path) from error


def _mib(count: int) -> str:
    return f"{-(-count >> 20):,} MiB"
