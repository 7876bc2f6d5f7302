"""Find the few sizes that cover what an app sees."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dmlprep.errors import UsageError

if TYPE_CHECKING:
    from dmlprep.covering import Cover, Sizes

__all__ = ["cover_sizes", "read_sizes"]


def read_sizes(log: str | Path, *, dims: Sequence[str] = ()) -> Sizes:
    """The sizes in a log, and how often each was asked for (docs/buckets.md).

    Args:
        log: a request a line: ``height=480 width=640``, a JSON object, or CSV with a first line of names.
        dims: names to read; then whatever else a line holds is left out.

    Returns:
        the names of the dimensions, and how often each size was asked for.

    Raises:
        InputError: the file cannot be read, or a line is wrong; the message says which.
    """
    from dmlprep.covering import read_log

    return read_log(Path(log), dims)


def cover_sizes(sizes: Sizes, *, waste: float | None = None, count: int | None = None, multiple: int = 1) -> Cover:
    """The few buckets that cover all sizes: few within a waste, or a number that waste little.

    Args:
        sizes: as of ``read_sizes``.
        waste: elements after padding over those that were asked for, of all requests together; 1.3 where neither it
            nor ``count`` is given.
        count: buckets at most, in its place.
        multiple: what the buckets' sizes must be a multiple of.

    Returns:
        the buckets, the smallest first, with their waste; ``optimal`` is true for one dimension only.

    Raises:
        UsageError: both are given, one is out of range, or no set of 64 buckets wastes so little.
    """
    from dmlprep.covering import cover, cover_within

    if waste is not None and count is not None:
        raise UsageError("a waste and a number of buckets are asked for", where="waste", fix="leave out one of the two")
    if count is not None:
        return cover(sizes.counts, count, multiple)
    return cover_within(sizes.counts, 1.3 if waste is None else waste, multiple)
