"""Covers: every size in a bucket, no worse than one bucket, and optimal in one dimension."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlprep.core.errors import UsageError
from dmlprep.pipeline.buckets import Cover, cover, cover_within

Size = tuple[int, ...]


def _waste(counts: dict[Size, int], boxes: tuple[Size, ...]) -> float:
    """By trying every box for every size; infinite where one lies in none."""
    padded = 0.0
    for size, count in counts.items():
        fits = [math.prod(box) for box in boxes if all(a <= b for a, b in zip(size, box, strict=True))]
        padded += count * (min(fits) if fits else math.inf)
    return padded / sum(count * math.prod(size) for size, count in counts.items())


def _best(counts: dict[Size, int], count: int) -> float:
    """By trying every set of boxes."""
    grid = list(itertools.product(*[sorted(set(axis)) for axis in zip(*counts, strict=True)]))
    return min(_waste(counts, boxes) for boxes in itertools.combinations(grid, min(count, len(grid))))


def _check(counts: dict[Size, int], found: Cover) -> None:
    boxes = tuple(one.sizes for one in found.buckets)
    assert found.waste == pytest.approx(_waste(counts, boxes))
    assert sum(one.requests for one in found.buckets) == sum(counts.values())
    assert found.worst >= found.waste - 1e-9 >= 1 - 2e-9


def _logs(dims: int, largest: int, most: int) -> st.SearchStrategy[dict[Size, int]]:
    size = st.tuples(*[st.integers(1, largest)] * dims)
    return st.dictionaries(size, st.integers(1, 20), min_size=1, max_size=most)


@settings(max_examples=60, deadline=None)
@given(_logs(1, 40, 9), st.integers(1, 3))
def test_no_set_of_one_dimension_does_better(counts: dict[Size, int], count: int) -> None:
    found = cover(counts, count)
    _check(counts, found)
    assert found.optimal
    assert len(found.buckets) <= count
    assert found.waste == pytest.approx(_best(counts, count))


@settings(max_examples=60, deadline=None)
@given(st.one_of(_logs(1, 40, 8), _logs(2, 9, 6)), st.floats(1, 3))
def test_the_waste_is_within_the_bound(counts: dict[Size, int], waste: float) -> None:
    found = cover_within(counts, waste)
    _check(counts, found)
    assert found.waste <= waste
    if found.optimal and len(found.buckets) > 1:
        assert _best(counts, len(found.buckets) - 1) > waste


def test_several_dimensions_are_searched_greedily() -> None:
    draw = random.Random(2)
    for _ in range(20):
        counts: dict[Size, int] = {(draw.randrange(1, 40), draw.randrange(1, 40)): 1 for _ in range(5)}
        found = cover(counts, 2)
        assert not found.optimal
        assert found.waste < 1.25 * _best(counts, 2)


@settings(max_examples=40, deadline=None)
@given(st.one_of(_logs(1, 5000, 40), _logs(2, 5000, 40), _logs(3, 500, 30)), st.integers(1, 8), st.integers(1, 64))
def test_many_sizes_are_covered_no_worse_than_by_one(counts: dict[Size, int], count: int, multiple: int) -> None:
    found = cover(counts, count, multiple)
    _check(counts, found)
    assert len(found.buckets) <= count
    assert all(size % multiple == 0 for one in found.buckets for size in one.sizes)
    around = tuple(-(-max(axis) // multiple) * multiple for axis in zip(*counts, strict=True))
    assert found.waste <= _waste(counts, (around,)) + 1e-9


@pytest.mark.slow
def test_large_logs_end_and_say_that_not_all_was_tried() -> None:
    draw = random.Random(1)
    flat = {(draw.randrange(1, 10**6),): draw.randrange(1, 9) for _ in range(20_000)}
    found = cover(flat, 4)
    assert not found.optimal
    # Sizes that are spread evenly: four levels waste about a quarter of what is between them.
    assert 1.2 < found.waste < 1.3
    wide = {(draw.randrange(1, 5000), draw.randrange(1, 5000)): 1 for _ in range(5000)}
    one, many = cover(wide, 1), cover(wide, 16)
    assert not many.optimal
    assert many.waste < one.waste / 2


def test_three_sizes_of_an_app() -> None:
    counts = {(480, 640): 70, (500, 640): 10, (512, 512): 5, (1024, 1024): 2}
    assert [one.sizes for one in cover(counts, 2).buckets] == [(512, 640), (1024, 1024)]
    assert [one.sizes for one in cover(counts, 9).buckets] == [(512, 512), (480, 640), (500, 640), (1024, 1024)]
    assert cover(counts, 9).waste == 1
    assert [one.requests for one in cover_within(counts, 1.1).buckets] == [85, 2]


@pytest.mark.parametrize(("waste", "multiple"), [(0.9, 1), (math.nan, 1), (1.0, 7), (1.5, 0)])
def test_what_cannot_be_is_told(waste: float, multiple: int) -> None:
    with pytest.raises(UsageError):
        cover_within({(5, 5): 1, (6, 5): 2}, waste, multiple)
    with pytest.raises(UsageError):
        cover({(5,): 1}, 0)
    apart = {(size,): 1 for size in (1, *range(1000, 1100))}
    for step in (1, 7):
        with pytest.raises(UsageError) as refused:
            cover_within(apart, 1.0, step)
        assert ("--bucket-multiple" in refused.value.fix) is (step > 1)
