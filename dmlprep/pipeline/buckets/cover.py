"""Find few buckets that cover all sizes, with the least padding.

A request is padded to the smallest bucket, by elements, that is large enough in every dimension. The cost of a set of
buckets is the number of elements of all requests after padding. Its waste is that number divided by the elements of the
requests before padding.

One dimension: dynamic programming over the sorted sizes, which is exact. Several: a greedy search. Each size begins as
its own bucket, and the two buckets that are cheapest to merge are merged until few remain.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dmlprep.core.errors import UsageError
from dmlprep.portable.bounds import MOST_BUCKETS, MOST_SIZE

GRID = 512
"""Largest number of distinct sizes at the start of the greedy search, for several dimensions."""

LINE, SIDE = 2048, 512
"""Largest number of distinct sizes of one dimension: if it is the only one (``LINE``), or one of several (``SIDE``)."""
Size = tuple[int, ...]


@dataclass(frozen=True)
class Bucket:
    """One bucket: sizes to which requests are padded.

    Attributes:
        sizes: the size in each dimension.
        requests: number of requests that are padded to this bucket.
        waste: elements of these requests after padding divided by their elements before; 1 means no padding.
    """

    sizes: Size
    requests: int
    waste: float


@dataclass(frozen=True)
class Cover:
    """A set of buckets such that each requested size fits into one.

    Attributes:
        buckets: the buckets, the smallest first.
        waste: elements after padding divided by elements before, over all requests.
        worst: the same ratio for the request with the most padding.
        optimal: True if no set is better: no other set of as many buckets wastes less or, if a limit for the waste was
            set, no smaller set keeps it. True only for one dimension of at most ``LINE`` sizes.
    """

    buckets: list[Bucket]
    waste: float
    worst: float
    optimal: bool


def cover(counts: Mapping[Size, int], count: int, multiple: int = 1) -> Cover:
    """Choose at most ``count`` buckets that cover all sizes with little padding, with the least if ``Cover.optimal``.

    Args:
        counts: number of requests by their sizes, at least one; all have the same dimensions.
        multiple: each size of a bucket is a multiple of this.

    Raises:
        UsageError: ``count`` or ``multiple`` is out of range, or a size rounded up is too large.
    """
    if not 1 <= count <= MOST_BUCKETS:
        raise UsageError(f"{count} is not a number of buckets", where="count", fix=f"pass 1 to {MOST_BUCKETS}")
    candidates, optimal = _candidates(_rounded(counts, multiple), count)
    return _cover(counts, candidates[-1], optimal=optimal)


def cover_within(counts: Mapping[Size, int], waste: float, multiple: int = 1) -> Cover:
    """Choose few buckets that cover all sizes with a waste of at most ``waste`` (see ``Cover.waste``).

    The result is the first set of 1, 2, ... buckets found with so little waste. If ``Cover.optimal``, none is smaller.
    The arguments ``counts`` and ``multiple`` are those of ``cover``.

    Raises:
        UsageError: ``waste`` is below 1, or no set of ``MOST_BUCKETS`` wastes so little; or as ``cover``.
    """
    if not waste >= 1:
        raise UsageError(f"invalid waste {waste}", where="waste", fix="pass at least 1 (no padding), such as 1.3")
    candidates, optimal = _candidates(_rounded(counts, multiple), MOST_BUCKETS)
    for boxes in candidates:
        chosen = _cover(counts, boxes, optimal=optimal)
        if chosen.waste <= waste:
            return chosen
    what = f"no set of at most {MOST_BUCKETS} buckets pads so little: the best pads to {chosen.waste:.4g} times"
    other = ", or omit --bucket-multiple" if multiple > 1 else ""
    raise UsageError(what, where="waste", fix=f"allow more padding (--bucket-waste){other}")


def _candidates(counts: Mapping[Size, int], most: int) -> tuple[list[list[Size]], bool]:
    """Return the best known sets of 1, 2, ... ``most`` boxes, and True if each is optimal.

    A box is the sizes of a possible bucket. There are fewer sets if there are fewer sizes.
    """
    if len(next(iter(counts))) > 1:
        return _merged(_coarser(counts) if len(counts) > GRID else counts, most), False
    weights = Counter({size[0]: count for size, count in counts.items()})
    levels = sorted(weights)
    optimal = len(levels) <= LINE
    if not optimal:
        weights = _up_to(weights, _spread(levels, LINE))
        levels = sorted(weights)
    sets = best_levels(levels, [weights[one] for one in levels], most)
    return [[(level,) for level in one] for one in sets], optimal


def _merged(counts: Mapping[Size, int], most: int) -> list[list[Size]]:
    """Return sets of 1, 2, ... ``most`` boxes (sizes of possible buckets), found by a greedy search.

    Each size begins as a box. The two boxes whose merging adds the fewest elements are merged, until one remains.
    """
    order = sorted(counts)
    boxes, weights = np.array(order, np.int64), np.array([counts[size] for size in order], np.float64)
    number = len(boxes)
    live, extra = np.ones(number, bool), np.full((number, number), np.inf)

    def price(row: int) -> None:
        """Compute how many elements merging box ``row`` with each other box adds, and store this in ``extra``.

        Each pair of boxes has one cell, above the diagonal.
        """
        padded = weights * boxes.prod(1, dtype=np.float64)
        both = np.maximum(boxes[row], boxes).prod(1, dtype=np.float64) * (weights[row] + weights)
        added = np.where(live, both - padded[row] - padded, np.inf)
        extra[row, row + 1 :], extra[:row, row] = added[row + 1 :], added[:row]

    for row in range(number):
        price(row)
    sets: list[list[Size]] = []
    for remaining in range(number, 0, -1):
        if remaining <= most:
            sets.append([tuple(int(one) for one in box) for box in boxes[live]])
        if remaining > 1:
            into, gone = divmod(int(extra.argmin()), number)
            boxes[into], weights[into] = np.maximum(boxes[into], boxes[gone]), weights[into] + weights[gone]
            live[gone], extra[gone], extra[:, gone] = False, np.inf, np.inf
            price(into)
    return sets[::-1]


def _rounded(counts: Mapping[Size, int], multiple: int) -> dict[Size, int]:
    if not 1 <= multiple <= MOST_SIZE:
        raise UsageError(f"{multiple} is not a multiple", where="multiple", fix=f"pass 1 to {MOST_SIZE}")
    rounded: Counter[Size] = Counter()
    for size, count in counts.items():
        up = tuple(-(-one // multiple) * multiple for one in size)
        if max(up) > MOST_SIZE:
            raise UsageError(f"{max(size)} rounded up is too large", where="multiple", fix="use a smaller multiple")
        rounded[up] += count
    return rounded


def _coarser(counts: Mapping[Size, int]) -> dict[Size, int]:
    """Return the counts with sizes rounded up in each dimension, so that at most ``GRID`` distinct sizes remain."""
    dims = len(next(iter(counts)))
    most = math.floor(GRID ** (1 / dims) + 1e-9)
    levels_by_axis = []
    for axis in range(dims):
        weights: Counter[int] = Counter()
        for size, count in counts.items():
            weights[size[axis]] += count
        weights = _up_to(weights, _spread(sorted(weights), SIDE))
        values = sorted(weights)
        levels_by_axis.append(best_levels(values, [weights[value] for value in values], most)[-1])
    coarse: Counter[Size] = Counter()
    for size, count in counts.items():
        up = tuple(levels[int(np.searchsorted(levels, one))] for levels, one in zip(levels_by_axis, size, strict=True))
        coarse[up] += count
    return coarse


def _spread(levels: Sequence[int], most: int) -> list[int]:
    """Return at most ``most`` of the sorted ``levels``, evenly chosen; the largest is always among them."""
    return sorted(levels[:: -max(1, -(-len(levels) // most))])


def _up_to(weights: Mapping[int, int], levels: Sequence[int]) -> Counter[int]:
    rounded: Counter[int] = Counter()
    for value, count in weights.items():
        rounded[levels[int(np.searchsorted(levels, value))]] += count
    return rounded


def _cover(counts: Mapping[Size, int], boxes: Iterable[Size], *, optimal: bool) -> Cover:
    """Assign each request to the smallest box that it fits into; return the boxes that are used, as a ``Cover``."""
    ordered = sorted(boxes, key=lambda box: (math.prod(box), box))
    points = np.array(list(counts), np.float64)
    weights = np.array(list(counts.values()), np.float64)
    elements = points.prod(1)
    uncovered, buckets, padded, worst = np.ones(len(points), bool), [], 0.0, 1.0
    for box in ordered:
        here = uncovered & (points <= np.array(box, np.float64)).all(1)
        if not here.any():
            continue
        uncovered &= ~here
        volume, requests = math.prod(box), int(weights[here].sum())
        buckets.append(Bucket(box, requests, requests * volume / float((weights * elements)[here].sum())))
        padded += requests * volume
        worst = max(worst, volume / float(elements[here].min()))
    return Cover(buckets, padded / float((weights * elements).sum()), worst, optimal)


def best_levels(values: Sequence[int], counts: Sequence[int], most: int) -> list[list[int]]:
    """Return the best sets of 1, 2, ... ``most`` levels, chosen from ``values``.

    A set is best if the sum of all values is the least after each is rounded up to a level. There are fewer sets if
    there are fewer values. Memory grows with ``most * len(values)``, time with ``most * len(values) ** 2``.

    Args:
        values: distinct values, sorted.
        counts: how often each value occurs.
    """
    number = len(values)
    sizes, before = np.array(values, np.float64), np.concatenate([[0.0], np.cumsum(np.array(counts, np.float64))])
    # cost[j]: cost of the first j values, where the last of them is a level.
    cost = np.concatenate([[0.0], sizes * before[1:]])
    choices: list[np.ndarray] = []
    sets = [[values[-1]]]
    for _ in range(1, min(most, number)):
        best, choice = cost.copy(), np.full(number + 1, -1)
        for end in range(2, number + 1):
            totals = cost[1:end] + sizes[end - 1] * (before[end] - before[1:end])
            at = int(np.argmin(totals))
            if totals[at] < best[end]:
                best[end], choice[end] = totals[at], at + 1
        choices.append(choice)
        cost = best
        sets.append(_levels(values, choices))
    return sets


def _levels(values: Sequence[int], choices: Sequence[np.ndarray]) -> list[int]:
    levels, end = [], len(values)
    for choice in reversed(choices):
        if choice[end] >= 0:
            levels.append(values[end - 1])
            end = int(choice[end])
    levels.append(values[end - 1])
    return sorted(levels)
