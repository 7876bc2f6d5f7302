"""Read a user's file within limits: only a plain file, up to the size that its kind can need.

A device (/dev/zero) has no end, and a pipe might never have one. A file of gigabytes instead of kilobytes is the wrong
file. Documents (TOML, JSON) have a limited depth and numbers of at most 64 bits, as later steps require.
"""

from __future__ import annotations

import json
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

DOCUMENT_BYTES = 64 << 20
"""Default limit for the size of a document, in bytes. The record of a model with 100,000 nodes has a fifth of this
size."""

MAX_DEPTH = 32
"""Limit for the depth of nested tables and lists in a document."""

T = TypeVar("T")

_INT64 = range(-(1 << 63), 1 << 63)
_PATH = re.compile(rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MAX_DEPTH}}}""")
"""Matches a dotted TOML key with more than ``MAX_DEPTH`` parts. Such a key is refused before the document is parsed:
the time of Python's parser grows with the square of the number of parts."""
_HALF = re.compile("[\ud800-\udfff]")
_TOO_LONG = "a whole number has more than 64 bits"
_DIGITS = 20
"""Length of the longest 64-bit whole number, with its sign. ``lenient`` reads a longer one as a floating-point
number."""


class Unfit(ValueError):
    """A file or its content is not as required; ``fix`` is the user's remedy."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


class NotToml(Unfit):
    """A text is not TOML; the message has the position."""


def check_plain(path: Path, limit: int | None = None) -> int:
    """Check that a path is a regular file, or a link to one, and return its size in bytes.

    Args:
        limit: the largest allowed size in bytes; ``None``: any size.

    Raises:
        OSError: the file's status cannot be read, for example because the file is missing.
        Unfit: it is a directory, a device, a pipe or a socket, or too large, or the path has a zero byte.
    """
    try:
        status = path.stat()
    except ValueError as error:
        raise Unfit("the path contains a zero byte", "check the path") from error
    if stat.S_ISDIR(status.st_mode):
        raise Unfit("this is a folder", "pass a file")
    if not stat.S_ISREG(status.st_mode):
        kind = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}.get(stat.S_IFMT(status.st_mode), "a device")
        raise Unfit(f"this is {kind}", "save it to a file first")
    if limit is not None and status.st_size > limit:
        raise _too_large(status.st_size, limit)
    return status.st_size


def read_given(path: Path, limit: int = DOCUMENT_BYTES) -> bytes:
    """Return the content of a plain file of at most ``limit`` bytes.

    Raises:
        OSError: it cannot be read.
        Unfit: as ``check_plain``.
    """
    check_plain(path, limit)
    with path.open("rb") as file:
        data = file.read(limit + 1)  # files below /proc report 0 bytes, and a file may grow
    if len(data) > limit:
        raise _too_large(len(data), limit)
    return data


def _too_large(size: int, limit: int) -> Unfit:
    return Unfit(f"it has {_bytes(size)}, at most {_bytes(limit)} are read", "check that it is the right file")


def _bytes(count: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count} bytes"


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML document.

    Raises:
        Unfit: it is not TOML (``NotToml``), or ``check_document`` refuses it.
    """
    if _PATH.search(text):
        raise _too_deep()
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise _too_deep() from None
    except tomllib.TOMLDecodeError as error:
        raise NotToml(f"not TOML: {error}", "see docs/recipes.md") from error
    except ValueError as error:  # a number with more digits than Python reads
        raise Unfit(_TOO_LONG, "write a smaller number") from error
    check_document(data)
    return data


def parse_json(data: bytes | str, kind: type[T], *, lenient: bool = False) -> T:
    """Decode a JSON document into ``kind``: a msgspec Struct, or a type such as ``dict[str, Any]``.

    All JSON documents of users, caches and other programs are decoded here; the caller has limited their size.
    ``lenient``: accept what Python writes but JSON lacks: ``Infinity``, ``NaN`` and lone surrogates (Python's form of
    path bytes that are not UTF-8). Also read whole numbers of more than 64 bits as floating-point numbers.

    Raises:
        Unfit: it is not JSON, is not a ``kind``, or ``check_document`` refuses it.
    """
    import msgspec  # imported here, because it takes 10 ms, which commands without a document save

    fix = "check that it is the right file"
    try:
        plain = json.loads(data, parse_int=_whole_number) if lenient else msgspec.json.decode(data)
        check_document(plain, half=lenient)
        return msgspec.convert(plain, kind) if lenient else msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise _too_deep() from None
    except Unfit:
        raise
    except (ValueError, OverflowError) as error:  # includes errors of msgspec and of encodings
        what = f"not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise Unfit(what, fix) from error


def cached_json(path: Path, kind: type[T], limit: int = DOCUMENT_BYTES, *, lenient: bool = False) -> T | None:
    """Read a JSON document that dmlprep wrote for itself, and decode it into ``kind`` like ``parse_json``.

    Return ``None`` if the document is missing, broken, not a ``kind``, or larger than ``limit`` bytes.
    """
    try:
        return parse_json(read_given(path, limit), kind, lenient=lenient)
    except (OSError, Unfit):
        return None


def _whole_number(text: str) -> int | float:
    return int(text) if len(text) <= _DIGITS and int(text) in _INT64 else float(text)


def check_document(data: object, *, half: bool = False) -> None:
    """Check a parsed document's depth, whole numbers and text values, so that later steps can process and write it.

    The keys of tables are not checked. With ``half``, text may have lone surrogates, which represent bytes of a path
    that are not UTF-8.

    Raises:
        Unfit: it is deeper than ``MAX_DEPTH``, or has a whole number of more than 64 bits, a zero byte or, without
            ``half``, a lone surrogate.
    """
    level: list[object] = [data]
    for depth in range(MAX_DEPTH + 1):
        below: list[object] = []
        for value in level:
            if depth == MAX_DEPTH and isinstance(value, Mapping | list | tuple):
                raise _too_deep()
            if isinstance(value, Mapping):
                below += value.values()
            elif isinstance(value, list | tuple):
                below += value
            elif isinstance(value, int) and value not in _INT64:
                raise Unfit(_TOO_LONG, "write a smaller number")
            elif isinstance(value, str) and "\0" in value:
                raise Unfit("a text contains a zero byte", "remove it")
            elif isinstance(value, str) and not half and not value.isascii() and _HALF.search(value):
                raise Unfit("a text is not valid UTF-8", "use a name or a path in UTF-8")
        if not below:
            return
        level = below


def _too_deep() -> Unfit:
    return Unfit(f"tables and lists are nested more than {MAX_DEPTH} deep", "write it flat")
