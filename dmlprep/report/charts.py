"""Compute the charts of the HTML report: positions of dots, bars and lines on scales of 0 to 100."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dmlprep.core.text.sizes import bytes_text
from dmlprep.record import RunRecord
from dmlprep.record.bisected import Bisected
from dmlprep.record.nodes import NodeTable
from dmlprep.record.steps import Profile
from dmlprep.report.fp16 import FP16_MAX, HalfStep

_ROWS = 24
"""The most outputs in the chart of errors. The tables have all outputs."""

_FULL = 100.0
"""The length of every scale."""

_DECADES = (-8, 2)
"""The powers of ten at the ends of the scale of relative errors."""

_BELOW = 100.0
"""The scale in the chart of a bisection includes at least the bound divided by this, and the bound times this."""

_STRETCH = re.compile(r"the (?P<count>\d+) nodes from (?P<first>.+) to .+", re.DOTALL)
"""Pattern of the names of blocks of several nodes, as the island search writes them (``precision.search.blocks``)."""


class Tickmark(NamedTuple):
    """A mark on a scale: its position, 0 to 100, and its text."""

    at: float
    text: str


class ErrorRow(NamedTuple):
    """An output in one check, in the chart of errors.

    Attributes:
        text: the error as text.
        error: position of the error, 0 to 100, on a logarithmic scale.
        bound: position of the bound; ``None`` without a bound.
        noise: position of the original's own noise; ``None`` if it is unknown or 0.
    """

    check: str
    output: str
    passed: bool
    text: str
    error: float
    bound: float | None
    noise: float | None


class StepBar(NamedTuple):
    """A step or check in the chart of durations.

    Attributes:
        seconds: the duration as text.
        bar: length of the bar for the duration, 0 to 100; the longest step has 100.
        nodes, size: number of nodes and size of tensors before and after the step, as text.
        weights: length of the bar for the size after the step, 0 to 100.
    """

    name: str
    outcome: str
    seconds: str
    bar: float
    nodes: str
    size: str
    weights: float


class Along(NamedTuple):
    """A chart of values along the nodes of a model, on a logarithmic scale, with a line for the limit.

    Attributes:
        points: a point (x, y) for each value: x from 0 (first node) to 1000, y from 0 (top) to 100.
        bars: instead of points, a bar (x, y, width) for each block of nodes.
        limit, limit_text: y of the line for the limit, and its text.
        beyond: number of values above the limit.
        marks: the marks of the scale.
        largest: a sentence about the largest value.
        left_out: number of values that are not drawn.
    """

    points: tuple[tuple[float, float], ...]
    bars: tuple[tuple[float, float, float], ...]
    limit: float
    limit_text: str
    beyond: int
    marks: tuple[Tickmark, ...]
    largest: str
    left_out: int = 0


def error_rows(record: RunRecord) -> tuple[list[ErrorRow], list[Tickmark], int]:
    """Return the rows of the chart of errors, the marks of its scale, and the number of outputs that are left out.

    There is a row for each output of each check. Failed outputs come first, then the largest errors.
    """
    rows = []
    for verdict in record.verdicts:
        for output in verdict.outputs:
            error = output.error or output.max_rel
            bound = _log(output.bound, _DECADES) if output.bound > 0 else None
            noise = _log(output.noise, _DECADES) if output.noise else None
            text, at = f"{error:.2g}", _log(error, _DECADES)
            rows.append(ErrorRow(str(verdict.check), output.output, output.passed, text, at, bound, noise))
    rows.sort(key=lambda row: (row.passed, -row.error))
    marks = [Tickmark(_log(10.0**p, _DECADES), _power(p)) for p in range(_DECADES[0], _DECADES[1] + 1, 2)]
    return rows[:_ROWS], marks, max(0, len(rows) - _ROWS)


def step_bars(record: RunRecord) -> list[StepBar]:
    """Return the rows of the chart of durations: one for each step, and for each check that took time."""
    timed: list[tuple[str, str, float, str, str, int]] = [
        (
            step.title,
            step.outcome,
            step.seconds,
            change(f"{step.nodes_before:,}", f"{step.nodes_after:,}"),
            change(bytes_text(step.bytes_before), bytes_text(step.bytes_after)),
            step.bytes_after,
        )
        for step in record.steps
    ]
    timed += [(str(v.check), v.outcome, v.seconds, "", "", 0) for v in record.verdicts if v.seconds]
    longest = max((row[2] for row in timed), default=0.0)
    largest = max((max(step.bytes_before, step.bytes_after) for step in record.steps), default=0)
    return [
        StepBar(name, outcome, f"{seconds:.2f} s", share(seconds, longest), nodes, size, share(weights, largest))
        for name, outcome, seconds, nodes, size, weights in timed
    ]


def share(value: float, most: float) -> float:
    """Return the length of the bar for a value, 0 to 100; ``most`` has the length 100."""
    # A record may have any value; a bar stays in its chart.
    return min(max(_FULL * value / most, 0.0), _FULL) if most > 0 else 0.0


def profile_along(profile: Profile) -> Along | None:
    """Return the chart of the largest magnitude of each node's output in FP32, with FP16's largest number as limit.

    ``None`` if there is nothing to draw.
    """
    peaks = enumerate(zip(profile.nodes, profile.peaks, strict=True))
    rows = [(place, 1, peak, name) for place, (name, peak) in peaks if peak is not None and peak > 0]
    line = (FP16_MAX, "largest FP16 number, 65504")
    return _along(rows, len(profile.nodes), line, "{0:.3g}, made by {1}", (1.0,), left_out=profile.left_out)


def blocks_along(half: HalfStep, table: NodeTable | None, tolerance: float) -> Along | None:
    """Return the chart of the error that each block of nodes alone causes in FP16, with the tolerance as limit.

    ``None`` if there is nothing to draw. ``table``: the nodes of the model, which give the place of each block.
    """
    if table is None:
        return None
    place = {name: index for index, name in reversed(list(enumerate(table.names)))}
    rows = []
    for name, error in half.blocks:
        stretch = _STRETCH.fullmatch(name)
        first, count = (stretch["first"], int(stretch["count"][:9])) if stretch else (name, 1)
        if first in place and error > 0:
            rows.append((place[first], min(count, len(place)), error, name))
    line = (tolerance, f"tolerance of the search, {tolerance:g}")
    left_out = len(half.blocks) - len(rows)
    return _along(rows, len(table.names), line, "{0:.2g}, of {1}", bars=True, left_out=left_out)


def errors_along(bisected: Bisected) -> Along | None:
    """Return the chart of the error of each value that a bisection compared, with the bound as limit.

    ``None`` if there is nothing to draw.
    """
    errors = [math.inf if error is None else error for error in bisected.errors]
    counts = [1] * len(errors)
    rows = list(zip(bisected.places, counts, errors, bisected.values, strict=True))
    worst = "{0:.2g}, of {1}" if math.inf not in errors else "not finite, of {1}"
    line, reach = (bisected.bound, f"bound of the error, {bisected.bound:g}"), (1 / _BELOW, _BELOW)
    return _along(rows, bisected.total_nodes, line, worst, [bisected.bound * factor for factor in reach])


def _along(
    rows: Sequence[tuple[int, int, float, str]],
    nodes: int,
    line: tuple[float, str],
    worst: str,
    reach: Iterable[float] = (),
    *,
    bars: bool = False,
    left_out: int = 0,
) -> Along | None:
    """Return the chart for rows of values; ``None`` without rows, or without a positive limit.

    Args:
        rows: for each value, the index of its first node, its number of nodes, the value and its name.
        nodes: number of nodes of the model.
        line: the limit, and its text.
        worst: format string for the largest value ({0}) and its name ({1}).
        reach: further values that the scale must include.
        bars: draw bars instead of points.
    """
    limit, limit_text = line
    if not rows or limit <= 0:
        return None
    decades = _range([limit, *reach, *(value for _, _, value, _ in rows)])
    unit = 1000 / nodes
    heights = [round(100 - _log(value, decades), 1) for _, _, value, _ in rows]
    placed = list(zip(rows, heights, strict=True))
    return Along(
        points=() if bars else tuple((round((at + 0.5) * unit, 1), y) for (at, *_), y in placed),
        bars=tuple((round(at * unit, 1), y, round(count * unit, 1)) for (at, count, *_), y in placed) if bars else (),
        limit=100 - _log(limit, decades),
        limit_text=limit_text,
        beyond=sum(value > limit for _, _, value, _ in rows),
        marks=_marks(decades),
        largest=f"The largest is {worst.format(*max(rows, key=lambda row: row[2])[2:])}.",
        left_out=left_out,
    )


def _log(value: float, decades: tuple[int, int]) -> float:
    """Return the position of a value on a logarithmic scale, 0 to 100; ``decades``: the powers of ten at its ends.

    Values outside the scale are at its ends.
    """
    if math.isnan(value) or value <= 0:
        return 0.0
    low, high = decades
    if math.isinf(value):
        return 100.0
    return round(min(max(_FULL * (math.log10(value) - low) / (high - low), 0.0), 100.0), 2)


def _range(values: Iterable[float]) -> tuple[int, int]:
    finite = [math.log10(value) for value in values if 0 < value < math.inf]
    low, high = math.floor(min(finite)), math.ceil(max(finite))
    return max(low, -12), min(max(high, low + 1), 40)


def _marks(decades: tuple[int, int]) -> tuple[Tickmark, ...]:
    low, high = decades
    step = max(1, math.ceil((high - low) / 5))
    return tuple(Tickmark(100 - _log(10.0**p, decades), _power(p)) for p in range(low, high + 1, step))


def _power(exponent: int) -> str:
    return f"1e{exponent}" if abs(exponent) > 3 else f"{10.0**exponent:g}"


def change(before: object, after: object) -> str:
    """Return the text ``before → after``; only one of them if they are equal."""
    return str(after) if before == after else f"{before} → {after}"
