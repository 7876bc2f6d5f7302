"""Read the small files of a package and its keys."""

from __future__ import annotations

from pathlib import Path

from dmlprep.errors import InputError
from dmlprep.files import Unfit, read_given, unreadable

__all__ = ["read_small"]

_DOCUMENT = 64 << 20
"""Bytes of the largest contract: some hundred for each file and tensor."""


def read_small(path: Path, *, code: str, fix: str, limit: int = _DOCUMENT) -> bytes:
    """The bytes of a plain file.

    Args:
        code: of the error where it cannot be read.
        fix: what to do then.
        limit: bytes that it may have.

    Raises:
        InputError: it cannot be read, is no plain file, or is larger.
    """
    try:
        return read_given(path, limit)
    except FileNotFoundError as error:
        raise InputError("is missing", where=str(path), code=code, fix=fix) from error
    except OSError as error:
        raise unreadable(error, path, code=code, fix=fix) from error
    except Unfit as error:
        raise InputError(str(error), where=str(path), code=code, fix=error.fix) from error
