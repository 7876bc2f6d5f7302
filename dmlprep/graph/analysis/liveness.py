"""Find which buffers are alive at the same time, and how much memory they need together.

These are pure functions over steps that are numbered in the order of execution, without nodes or devices.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Buffer:
    """``nbytes`` bytes of memory in use from the step ``first``, which writes them, to ``last``, both included."""

    name: str
    nbytes: int
    first: int
    last: int


class Peak(NamedTuple):
    """The most memory in use at the same time, in bytes, and the first step that needs it: -1 if it is 0 bytes."""

    nbytes: int
    step: int


def live_peak(buffers: Sequence[Buffer]) -> Peak:
    """Return the largest total size of buffers that are alive at the same step, and that step."""
    changes: dict[int, int] = {}
    for one in buffers:
        changes[one.first] = changes.get(one.first, 0) + one.nbytes
        changes[one.last + 1] = changes.get(one.last + 1, 0) - one.nbytes
    held = most = 0
    at = -1
    for step in sorted(changes):
        held += changes[step]
        if held > most:
            most, at = held, step
    return Peak(most, at)


def held_at(buffers: Sequence[Buffer], step: int) -> list[Buffer]:
    """Return the buffers that are alive at a step, the largest first."""
    return sorted((b for b in buffers if b.first <= step <= b.last), key=lambda b: (-b.nbytes, b.first, b.name))


def pooled_bytes(buffers: Sequence[Buffer], *, likeness: float = 1.0, alignment: int = 1) -> int:
    """Return the bytes that a pool of reusable blocks needs: each buffer uses a free block of like size, or a new one.

    Blocks are neither split nor joined, so this is ``live_peak`` or more, and never more than the sum of all buffers,
    each rounded up to ``alignment``.

    Args:
        likeness: a block fits if the smaller of the two sizes is at least this share of the larger one, more than 0
            and at most 1. The block of the nearest size is used; a block that is too small grows.
        alignment: the size of each block is a multiple of this number of bytes.
    """
    free: list[int] = []  # sizes, sorted
    ending: list[tuple[int, int]] = []  # last step and size of each block in use, as a heap
    total = 0
    for one in sorted(buffers, key=lambda b: b.first):
        while ending and ending[0][0] < one.first:
            bisect.insort(free, heapq.heappop(ending)[1])
        size = -(-one.nbytes // alignment) * alignment
        if not size:
            continue
        at = _nearest(free, size, likeness)
        held = free.pop(at) if at is not None else 0
        total += max(size - held, 0)
        heapq.heappush(ending, (one.last, max(size, held)))
    return total


def _nearest(free: list[int], size: int, likeness: float) -> int | None:
    """Return the index of the free block nearest to a size, among blocks that fit; ``None`` if no block fits."""
    at = bisect.bisect_left(free, size)
    near = [i for i in (at, at - 1) if 0 <= i < len(free)]
    # Integers of any length: sizes in a file may be beyond the range of a float.
    share = int(likeness * 1024)
    like = [i for i in near if min(free[i], size) * 1024 >= share * max(free[i], size)]
    return min(like, key=lambda i: abs(free[i] - size), default=None)
