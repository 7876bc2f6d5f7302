"""Few buckets that cover all sizes, with the least padding.

A request is padded to the bucket of the fewest elements that is as large as it in every dimension. What a set of
buckets costs are the elements of all requests as they are padded; its waste is that over the elements that were asked
for.

One dimension: dynamic programming over the sizes in their order, which is exact. More: every bucket of a best set is
the least one around some of the sizes, so the candidates are those; a search from the best single bucket on, with
exchanges, gives a good set, and a branch and bound proves it or finds a better one. Both work on at most ``GRID``
boxes; where there are more, the sizes of each dimension are first rounded up to those that waste least by
themselves. The result then need not be the best, and says so. So it is where the branch and bound gives up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dmlprep.bounds import MOST_BUCKETS, MOST_SIZE
from dmlprep.covering.line import best_levels
from dmlprep.covering.search import Problem, best_rows
from dmlprep.errors import UsageError

__all__ = ["GRID", "Bucket", "Cover", "cover", "cover_within"]

GRID = 512
"""Boxes that are searched."""

LINE, SIDE = 2048, 512
"""Sizes of one dimension that are looked at, where it is the only one and where it is one of several."""

CELLS = 8192
"""Places that are looked at for boxes."""

Size = tuple[int, ...]


@dataclass(frozen=True)
class Bucket:
    """One bucket of a cover.

    Attributes:
        sizes: in the order of the dimensions.
        requests: that go into it.
        waste: elements of it over those that were asked for, of all these requests together.
    """

    sizes: Size
    requests: int
    waste: float


@dataclass(frozen=True)
class Cover:
    """Buckets that cover all sizes.

    Attributes:
        buckets: from the smallest on.
        waste: elements after padding over those that were asked for, of all requests together.
        worst: the same of the request that is padded most.
        least: whether it is proved that no set does better: no other of as many buckets wastes less, or (where the
            waste is bounded) none of fewer is within the bound.
    """

    buckets: list[Bucket]
    waste: float
    worst: float
    least: bool


def cover(counts: Mapping[Size, int], count: int, multiple: int = 1) -> Cover:
    """At most ``count`` buckets that cover all sizes with the least waste.

    Args:
        counts: requests by their sizes, in elements; all of the same dimensions.
        multiple: what the buckets' sizes must be a multiple of.

    Raises:
        UsageError: ``count`` is out of range, or a size rounded up is too large.
    """
    if not 1 <= count <= MOST_BUCKETS:
        raise UsageError(f"{count} buckets cannot be", where="count", fix=f"ask for 1 to {MOST_BUCKETS}")
    search = _Search(_rounded(counts, multiple), count)
    found = search.best(count)
    return _cover(counts, found, least=search.proved)


def cover_within(counts: Mapping[Size, int], waste: float, multiple: int = 1) -> Cover:
    """The fewest buckets whose waste is at most ``waste``, and of those the ones that waste least.

    Raises:
        UsageError: ``waste`` is below 1, or no set of ``MOST_BUCKETS`` wastes so little; or as ``cover``.
    """
    if not waste >= 1:
        raise UsageError(f"a waste of {waste} cannot be", where="waste", fix="1 is no padding at all; give 1.3 or so")
    search = _Search(_rounded(counts, multiple), MOST_BUCKETS)
    made: Cover | None = None
    for count in range(1, MOST_BUCKETS + 1):
        before = made
        made = _cover(counts, search.best(count), least=search.proved)
        if made.waste <= waste:
            return made
        if before is not None and before.waste == made.waste and search.proved:
            break  # there is nothing to gain from more
    best = made.waste if made is not None else math.inf
    raise UsageError(
        f"no set of at most {MOST_BUCKETS} buckets that was found wastes so little: the best has {best:.4g}",
        where="waste",
        fix="allow more, or leave out the multiple that sizes are rounded to",
    )


class _Search:
    """The best buckets for some sizes, by their number.

    Args:
        counts: requests by their sizes.
        most: buckets that will be asked for.

    Attributes:
        proved: whether all that was found so far is proved to be the best.
    """

    def __init__(self, counts: Mapping[Size, int], most: int) -> None:
        self.proved = True
        self._line: list[list[int]] = []
        if len(next(iter(counts))) == 1:
            weights = {size[0]: count for size, count in counts.items()}
            levels = sorted(weights)
            if len(levels) > LINE:
                weights = _up_to(weights, _spread(levels, LINE))
                levels, self.proved = sorted(weights), False
            self._line = best_levels(levels, [weights[one] for one in levels], most)
            return
        boxes = _joins(list(counts))
        if len(boxes) > GRID:
            counts, self.proved = _coarser(counts), False
            boxes = _joins(list(counts))
        self._boxes = boxes
        sizes = sorted(counts)
        self._problem = Problem(np.array(boxes, np.float64), np.array(sizes, np.float64), [counts[s] for s in sizes])

    def best(self, count: int) -> list[Size]:
        """At most ``count`` boxes."""
        if self._line:
            return [(level,) for level in self._line[min(count, len(self._line)) - 1]]
        rows, proved = best_rows(self._problem, count, prove=self.proved)
        self.proved = self.proved and proved
        return [self._boxes[row] for row in rows]


def _rounded(counts: Mapping[Size, int], multiple: int) -> dict[Size, int]:
    if not 1 <= multiple <= MOST_SIZE:
        raise UsageError(f"{multiple} is no multiple", where="multiple", fix="give a whole number from 1")
    found: dict[Size, int] = {}
    for size, count in counts.items():
        up = tuple(-(-one // multiple) * multiple for one in size)
        if max(up) > MOST_SIZE:
            raise UsageError(f"{max(size)} rounded up is too large", where="multiple", fix="round to less")
        found[up] = found.get(up, 0) + count
    return found


def _coarser(counts: Mapping[Size, int]) -> dict[Size, int]:
    """The sizes of each dimension rounded up to those that waste least by themselves, so that ``GRID`` boxes do."""
    dims = len(next(iter(counts)))
    most = math.floor(GRID ** (1 / dims) + 1e-9)
    kept = []
    for axis in range(dims):
        weights: dict[int, int] = {}
        for size, count in counts.items():
            weights[size[axis]] = weights.get(size[axis], 0) + count
        weights = _up_to(weights, _spread(sorted(weights), SIDE))
        values = sorted(weights)
        kept.append(best_levels(values, [weights[value] for value in values], most)[-1])
    found: dict[Size, int] = {}
    for size, count in counts.items():
        up = tuple(levels[int(np.searchsorted(levels, one))] for levels, one in zip(kept, size, strict=True))
        found[up] = found.get(up, 0) + count
    return found


def _spread(levels: Sequence[int], most: int) -> list[int]:
    """At most so many of the levels, evenly chosen, the largest among them."""
    return sorted(levels[:: -max(1, -(-len(levels) // most))])


def _up_to(weights: Mapping[int, int], levels: Sequence[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for value, count in weights.items():
        up = levels[int(np.searchsorted(levels, value))]
        found[up] = found.get(up, 0) + count
    return found


def _joins(sizes: Sequence[Size]) -> list[Size]:
    """The least boxes around some of the sizes: in each dimension, one of the sizes inside is as large as the box.

    Of more than ``CELLS`` places for them, none is looked at: the answer has one box more than ``GRID``.
    """
    dims = len(sizes[0])
    points = np.array(sizes, np.int64)
    if math.prod(len(np.unique(points[:, axis])) for axis in range(dims)) > CELLS or len(points) > GRID:
        return [sizes[0]] * (GRID + 1)
    grid = np.stack(np.meshgrid(*[np.unique(points[:, axis]) for axis in range(dims)], indexing="ij"), -1)
    found = []
    for box in grid.reshape(-1, dims):
        inside = points[(points <= box).all(1)]
        if len(inside) and (inside.max(0) == box).all():
            found.append(tuple(int(one) for one in box))
    return sorted(found, key=lambda box: (-math.prod(box), box))


def _cover(counts: Mapping[Size, int], boxes: Iterable[Size], *, least: bool) -> Cover:
    """What a set of boxes amounts to for all requests; boxes that no request goes into are left out."""
    ordered = sorted(boxes, key=lambda box: (math.prod(box), box))
    points = np.array(list(counts), np.float64)
    weights = np.array(list(counts.values()), np.float64)
    elements = points.prod(1)
    left, buckets, padded, worst = np.ones(len(points), bool), [], 0.0, 1.0
    for box in ordered:
        here = left & (points <= np.array(box, np.float64)).all(1)
        if not here.any():
            continue
        left &= ~here
        volume, requests = math.prod(box), int(weights[here].sum())
        buckets.append(Bucket(box, requests, requests * volume / float((weights * elements)[here].sum())))
        padded += requests * volume
        worst = max(worst, volume / float(elements[here].min()))
    return Cover(buckets, padded / float((weights * elements).sum()), worst, least)
