"""Buffers that are held at the same time: bounds that hold for any of them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlprep.graph.analysis.liveness import Buffer, held_at, live_peak, pooled_bytes


@st.composite
def buffers(draw: st.DrawFn) -> list[Buffer]:
    def one(number: int) -> Buffer:
        first = draw(st.integers(0, 30))
        nbytes = draw(st.integers(0, 1 << draw(st.sampled_from([3, 20, 90]))))
        return Buffer(f"t{number}", nbytes, first, first + draw(st.integers(0, 10)))

    return [one(number) for number in range(draw(st.integers(0, 25)))]


@given(buffers(), st.sampled_from([0.5, 0.6, 1.0]))
def test_peaks_lie_between_the_largest_buffer_and_all_of_them(some: list[Buffer], likeness: float) -> None:
    largest, together = max((b.nbytes for b in some), default=0), sum(b.nbytes for b in some)
    peak = live_peak(some)
    assert largest <= peak.nbytes <= together
    assert peak.nbytes <= pooled_bytes(some, likeness=likeness) <= together
    assert sum(b.nbytes for b in held_at(some, peak.step)) == peak.nbytes
    assert max((sum(b.nbytes for b in held_at(some, step)) for step in range(45)), default=0) == peak.nbytes


@given(buffers())
def test_names_decide_nothing(some: list[Buffer]) -> None:
    renamed = [Buffer(f"other {99 - n}", b.nbytes, b.first, b.last) for n, b in enumerate(some)]
    assert live_peak(renamed) == live_peak(some)
    assert pooled_bytes(renamed, likeness=0.6) == pooled_bytes(some, likeness=0.6)


@given(buffers(), st.integers(1, 300))
def test_blocks_are_a_multiple_of_the_alignment(some: list[Buffer], alignment: int) -> None:
    whole = pooled_bytes(some, alignment=alignment)
    assert whole % alignment == 0
    # Not "about as much as without it": sizes that become equal share a block.
    assert live_peak(some).nbytes <= whole <= sum(b.nbytes + alignment for b in some)


@pytest.mark.parametrize(
    ("sizes", "measured", "expected"),
    [
        # What DirectML 1.15.4 asks for, in MiB, of chains of convolutions whose results have so many MiB: a result is
        # held from its own step to the next one's.
        ([1, 2, 4, 8, 16], 31, 31),
        ([16, 8, 4, 2, 1], 31, 31),
        ([8, 8, 8, 8, 8], 16, 16),
        ([8, 1, 8, 1, 8, 1], 9, 9),
        ([2, 32, 2, 32, 2], 34, 34),
        ([32, 1, 31, 2, 30, 4], 39, 39),
        ([4, 4, 16, 16], 40, 40),
        # Blocks do not grow there; in whole models the pool is nearer to what is measured if they may.
        ([4, 4, 5, 16], 29, 25),
        ([32, 32, 16, 96, 24, 6, 36, 36, 6, 36], 254, 190),
    ],
)
def test_chains_take_about_what_directml_was_measured_to_take(sizes: list[int], measured: int, expected: int) -> None:
    chain = [Buffer(f"t{n}", size, n, n + 1) for n, size in enumerate(sizes)]
    assert pooled_bytes(chain, likeness=0.6) == expected
    assert expected <= measured <= 1.34 * expected


def test_sizes_of_any_length_are_added_up() -> None:
    huge = [Buffer("a", 10**40, 0, 1), Buffer("b", 10**40 + 1, 1, 2), Buffer("c", 10**40, 2, 3)]
    assert live_peak(huge).nbytes == 2 * 10**40 + 1
    assert pooled_bytes(huge, likeness=0.6) == 2 * 10**40 + 1


@pytest.mark.slow
def test_time_grows_with_the_number_of_buffers() -> None:
    """A deep chain, and many buffers that are all held to the end: neither is a matter of squares."""
    began = time.perf_counter()
    count = 60_000
    for last in (lambda n: n + 1, lambda n: count):
        some = [Buffer("t", 1 + n % 999, n, last(n)) for n in range(count)]
        assert pooled_bytes(some, likeness=0.6) >= live_peak(some).nbytes
    assert time.perf_counter() - began < 30  # squares would take many minutes
