"""Read the sizes that an app logged: one request in each line, as ``height=480 width=640``, JSON or CSV."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlprep.core.errors import InputError
from dmlprep.core.files import Unfit, parse_json, read_text, unreadable
from dmlprep.portable.bounds import MOST_SIZE

MOST_DISTINCT = 100_000
"""Largest number of distinct sizes in a log."""

MOST_DIMENSIONS = 8

_LINE = 4096
"""Largest number of characters in a line."""

_BETWEEN = re.compile(r"[\s,;]+")
_FIX = "write one request per line: height=480 width=640; or JSON objects, or CSV with a first line of names"


@dataclass(frozen=True)
class Sizes:
    """The sizes in a log, with the number of requests for each.

    Attributes:
        names: names of the dimensions (``height``, ``width``).
        counts: number of requests for each combination of sizes (``(480, 640)``), in the order of ``names``.
    """

    names: tuple[str, ...]
    counts: dict[tuple[int, ...], int]

    @property
    def requests(self) -> int:
        """The number of all requests in the log."""
        return sum(self.counts.values())


def read_log(path: Path, dims: Sequence[str] = ()) -> Sizes:
    """Read a log of requested sizes and count them. Empty lines, and those that begin with ``#``, are skipped.

    Args:
        path: the log, of at most 64 MiB: lines of ``NAME=SIZE``, or a JSON object in each line, or CSV whose first line
            has the names.
        dims: names of the dimensions to read; everything else in a line is ignored. If empty, the first line sets the
            dimensions, and no line may have others.

    Raises:
        InputError: the file cannot be read or is too large. A line is too long, has another form, lacks a size or has
            an unknown dimension. Or the log has no sizes, too many distinct ones or too many dimensions.
    """
    try:
        text = read_text(path)
    except OSError as error:
        raise unreadable(error, path) from error
    except Unfit as error:
        raise InputError(str(error), where=str(path), fix=error.fix) from error
    names = tuple(dict.fromkeys(dims))
    counts: Counter[tuple[int, ...]] = Counter()
    for number, sizes in _requests(text, path, bool(dims)):
        names = names or tuple(sizes)
        where = f"{path}:{number}"
        if len(names) > MOST_DIMENSIONS:
            raise InputError(f"{len(names)} dimensions are too many", where=where, fix=f"at most {MOST_DIMENSIONS}")
        if missing := [name for name in names if name not in sizes]:
            raise InputError(f"the size of {missing[0]!r} is missing", where=where, fix=_FIX)
        if not dims and (strange := [name for name in sizes if name not in names]):
            what = f"{strange[0]!r} is not a dimension of the lines above"
            raise InputError(what, where=where, fix="choose the dimensions with --bucket-dim")
        counts[tuple(_size(sizes[name], name, where) for name in names)] += 1
        if len(counts) > MOST_DISTINCT:
            what = f"more than {MOST_DISTINCT} different sizes"
            raise InputError(what, where=where, fix="round the sizes first")
    if not counts:
        raise InputError("it contains no sizes", where=str(path), fix=_FIX)
    return Sizes(names, dict(counts))


def _requests(text: str, path: Path, some: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each request's line, counted from 1, and its values by name, not yet checked.

    ``some``: True if words without ``=`` are ignored; otherwise they are an error.
    """
    header: list[str] | None = None
    first = True
    for number, raw in enumerate(io.StringIO(text), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        where = f"{path}:{number}"
        if len(line) > _LINE:
            raise InputError(f"a line has more than {_LINE} characters", where=where, fix=_FIX)
        cells = [cell.strip() for cell in line.split(",")]
        if first and "=" not in line and not line.startswith("{"):
            if not all(cells) or len(set(cells)) < len(cells):
                raise InputError("the first line is neither a list of names nor sizes", where=where, fix=_FIX)
            header = cells
        elif header is not None:
            if len(cells) != len(header):
                what = f"the line has {len(cells)} cells, and the first one {len(header)} names"
                raise InputError(what, where=where, fix=_FIX)
            yield number, dict(zip(header, cells, strict=True))
        elif line.startswith("{"):
            try:
                yield number, parse_json(line, dict[str, Any])
            except Unfit as error:
                raise InputError(f"the line is not a JSON object: {error}", where=where, fix=_FIX) from error
        else:
            yield number, _pairs(line, where, some)
        first = False


def _pairs(line: str, where: str, some: bool) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for word in filter(None, _BETWEEN.split(line)):
        name, equals, size = word.rpartition("=")
        if not (name and equals and size):
            if some:
                continue
            fix = f"{_FIX}; or choose the names with --bucket-dim"
            raise InputError(f"{word[:60]!r} is not a size", where=where, fix=fix)
        if sizes.setdefault(name, size) != size:
            raise InputError(f"{name[:60]!r} has two sizes", where=where, fix=_FIX)
    return sizes


def _size(value: Any, name: str, where: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_SIZE:
        what, fix = f"{str(value)[:60]!r} is not a size of {name!r}", f"pass a whole number from 1 to {MOST_SIZE}"
        raise InputError(what, where=where, fix=fix)
    return value
