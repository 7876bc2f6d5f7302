"""Explain why a file cannot be read or written, and the fix."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from dmlprep.core.errors import InputError, OutputError

_SHARING, _LOCKED, _DENIED, _TOO_LONG, _MAPPED = 32, 33, 5, 206, 1224
"""Windows error numbers: ERROR_SHARING_VIOLATION, _LOCK_VIOLATION, _ACCESS_DENIED, _FILENAME_EXCED_RANGE,
_USER_MAPPED_FILE."""

_LOOKED_AT = 2000
"""Largest number of names of a folder that are compared: more would take too long for an error message."""

_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


def explain(error: OSError, path: Path | str = "") -> tuple[str, str]:
    """Return why a file (default: the one that the error names) cannot be used, and the fix.

    Both are empty if the error gives no known reason; then the caller must name one.
    """
    where = Path(path or error.filename or "")
    number = _windows_number(error, where)
    if number in (_SHARING, _LOCKED, _DENIED, _MAPPED):
        from dmlprep.core.files.open_by import holders

        programs = holders(where)
        if programs or number != _DENIED:
            named = f": {', '.join(programs)}" if programs else ""
            return f"is open in another program{named}", "close it there, then run again"
    if error.errno in _FULL:
        return "the disk is full", "free some space, or choose another place"
    if error.errno == errno.EROFS:
        return "its file system is read-only", "choose another place"
    if error.errno == errno.ENAMETOOLONG or number == _TOO_LONG:
        return "its path is too long", "choose a shorter folder or name"
    return "", ""


def _windows_number(error: OSError, path: Path) -> int | None:
    """Return the Windows error number of an error, even if Python only reports that permission was denied.

    Return ``None`` if it has none, for example on other systems.
    """
    number: int | None = getattr(error, "winerror", None)
    if sys.platform == "win32" and number is None and error.errno == errno.EACCES:
        from dmlprep.core.files.open_by import opening_error

        # An open file can only fail to read or write because of a lock.
        return _LOCKED if error.filename is None else opening_error(path)
    return number


def unwritable(error: OSError, path: Path, fix: str = "") -> OutputError:
    """Return, without raising it, the error for an output that could not be written.

    ``fix`` applies if ``explain`` knows no fix for the reason.
    """
    what, how = explain(error, path)
    how = how or fix or "check the folder, its permissions and the space on the disk"
    return OutputError(what or f"cannot be written: {error.strerror or error}", where=str(path), fix=how)


@contextlib.contextmanager
def reading(path: Path, *, code: str = "") -> Iterator[None]:
    """Turn an ``OSError`` of the block into an ``InputError`` about ``path``: an error of ``read`` names no file."""
    try:
        yield
    except OSError as error:
        raise unreadable(error, path, code=code) from error


def pieces(path: Path, *, code: str = "") -> Iterator[bytes]:
    """Yield the content of a file, at most 1 MiB at a time.

    Raises:
        InputError: it cannot be read; with ``code``.
    """
    with reading(path, code=code), path.open("rb") as file:
        while piece := file.read(1 << 20):
            yield piece


def unreadable(error: OSError, path: Path, *, code: str = "", fix: str = "") -> InputError:
    """Return, without raising it, the error for an input that could not be read.

    ``fix`` applies if ``explain`` knows no fix for the reason.
    """
    what, how = explain(error, path)
    how = how or fix or "check the path and its permissions"
    return InputError(what or f"cannot be read: {error.strerror or error}", where=str(path), code=code, fix=how)


def meant(path: Path, otherwise: str) -> str:
    """Return the fix for a missing path: ``did you mean PATH?`` with a similar name of its folder, or ``otherwise``."""
    with contextlib.suppress(OSError, ValueError), os.scandir(path.parent) as entries:
        names = [entry.name for entry in islice(entries, _LOOKED_AT) if not entry.name.startswith(".")]
        close = get_close_matches(path.name, names, 1, 0.75)
        if close and close[0] != path.name:
            return f"did you mean {path.parent / close[0]}?"
    return otherwise
