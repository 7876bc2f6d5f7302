"""Compute the ribbon, a figure of all nodes of a model in a row.

It has a lane for nodes on DirectML, one for nodes on the CPU, fused partitions above, and copies between them below.
Positions and widths are on a scale of 0 to 1000. A crossing is a tensor that is copied between CPU and GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

from dmlprep.core.text.sizes import bytes_text
from dmlprep.record.nodes import NodeTable, Reason, numbers

WIDTH = 1000.0
"""The width of a ribbon, and its largest number of columns."""

Kind = Literal["dml", "single", "cpu"]

_RANK: dict[Kind, int] = {"dml": 0, "single": 1, "cpu": 2}
_APART = 120
"""The most nodes for which each gets its own cell."""

_LISTED = 60
"""The most crossings, and the most groups of nodes on the CPU, in a list."""

_REACH = 13.0
"""The height of the longest tick."""


class Cell(NamedTuple):
    """Neighbouring nodes that run at the same place.

    If several nodes share a column of the figure, the worst counts: CPU, then FP32 on DirectML.
    """

    kind: Kind
    x: float
    width: float


class Band(NamedTuple):
    """Neighbouring nodes of one fused partition; ``odd`` alternates from one partition to the next."""

    x: float
    width: float
    odd: bool


class Tick(NamedTuple):
    """The tensors that are copied between CPU and GPU before the node at ``x``.

    ``height`` grows with the logarithm of their size. ``up``: to DirectML; otherwise to the CPU.
    """

    x: float
    height: float
    up: bool


class Copied(NamedTuple):
    """A tensor that is copied between CPU and GPU, in the list of crossings; ``up``: to DirectML."""

    value: str
    up: bool
    producer: str
    consumer: str
    size: str


@dataclass(frozen=True)
class Away:
    """The nodes of one operator that run on the CPU for the same reason.

    ``first`` and ``source``: the name of the first one, and its module and source line; empty if unknown.
    """

    operator: str
    code: str
    why: str
    count: int
    role: str
    first: str
    source: str


@dataclass(frozen=True)
class Ribbon:
    """The figure of one placement, and lists that belong to it.

    Attributes:
        on_cpu, single: number of nodes on the CPU, and on DirectML in FP32 although the run has FP16 steps.
        moved: size of all crossings as text; empty if no size is known.
        copied, cut: the listed crossings, and the number of crossings that are not listed.
        away: the nodes on the CPU, by operator and reason, at most 60 groups.
        apart: whether each node has its own cell.
    """

    name: str
    table: NodeTable
    on_cpu: int
    single: int
    cells: tuple[Cell, ...]
    bands: tuple[Band, ...]
    ticks: tuple[Tick, ...]
    moved: str
    copied: tuple[Copied, ...]
    cut: int
    away: tuple[Away, ...]
    apart: bool


_ROLES = {"c": "compute", "s": "shape arithmetic", "k": "control flow", "f": "folded at load"}


def kinds(table: NodeTable, *, half: bool) -> list[Kind]:
    """Return where each node runs: ``dml``, ``cpu``, or ``single`` for nodes in FP32 on DirectML.

    ``half``: whether the run has FP16 steps; otherwise there is no ``single``.
    """
    return [
        "cpu" if provider == "c" else "single" if half and floats == "s" else "dml"
        for provider, floats in zip(table.providers, table.floats, strict=True)
    ]


def ribbon(table: NodeTable, name: str, *, half: bool) -> Ribbon:
    """Return the ribbon for a table of nodes; ``half``: whether the run has FP16 steps.

    It has at most 1000 cells. ``name`` is its title, such as ``before``.
    """
    every = kinds(table, half=half)
    known = [size for size in numbers(table.crossings.nbytes) if size >= 0]
    unknown = table.crossings.total - len(known)
    copied = tuple(_copied(table))
    return Ribbon(
        name=name,
        table=table,
        on_cpu=every.count("cpu") + table.cpu_left_out,
        single=every.count("single"),
        cells=tuple(_cells(every)),
        bands=tuple(_bands(table)),
        ticks=tuple(_ticks(table)),
        moved=bytes_text(sum(known)) + (f", {unknown} of unknown size" if unknown else "") if known else "",
        copied=copied[:_LISTED],
        cut=table.crossings.total - len(copied[:_LISTED]),
        away=tuple(_away(table)),
        apart=len(every) <= _APART,
    )


def _cells(every: Sequence[Kind]) -> Iterator[Cell]:
    columns = min(len(every), int(WIDTH))
    worst: list[Kind] = ["dml"] * columns
    for index, kind in enumerate(every):
        at = index * columns // len(every)
        worst[at] = max(worst[at], kind, key=_RANK.__getitem__)
    unit = WIDTH / columns if columns else 0.0
    if columns <= _APART:
        yield from (Cell(kind, at * unit, unit) for at, kind in enumerate(worst))
        return
    at = 0
    for kind, run in groupby(worst):
        length = len(list(run))
        yield Cell(kind, at * unit, length * unit)
        at += length


def _bands(table: NodeTable) -> Iterator[Band]:
    graphs = numbers(table.graph) or [0] * len(table.names)
    unit = WIDTH / len(graphs) if graphs else 0.0
    at, odd, shown = 0, False, 0
    for (_, partition), run in groupby(zip(graphs, numbers(table.partition), strict=True)):
        length = len(list(run))
        if partition >= 0 and shown < WIDTH:
            yield Band(at * unit, length * unit, odd)
            odd, shown = not odd, shown + 1
        at += length


def _ticks(table: NodeTable) -> Iterator[Tick]:
    crossings = table.crossings
    unit = WIDTH / len(table.names) if table.names else 0.0
    columns: dict[tuple[float, bool], int] = {}
    rows = zip(
        numbers(crossings.producer), numbers(crossings.consumer), numbers(crossings.nbytes), crossings.to, strict=True
    )
    for producer, consumer, size, to in rows:
        at = consumer if consumer >= 0 else producer
        if at < 0:
            continue
        place = round(at * unit, 1), to == "d"
        columns[place] = columns.get(place, 0) + max(size, 1)
    for (x, up), size in sorted(columns.items()):
        yield Tick(x, round(_REACH * min(0.3 + math.log10(size) / 11, 1.0), 2), up)


def _copied(table: NodeTable) -> Iterator[Copied]:
    crossings = table.crossings

    def named(index: int, otherwise: str) -> str:
        return table.names[index] if index >= 0 else otherwise

    columns = (crossings.values, crossings.to, numbers(crossings.producer), numbers(crossings.consumer))
    for (value, to, producer, consumer), size in zip(
        zip(*columns, strict=True), numbers(crossings.nbytes), strict=True
    ):
        text = bytes_text(size) if size >= 0 else "unknown"
        yield Copied(value, to == "d", named(producer, "an input"), named(consumer, "a skipped node"), text)


def _away(table: NodeTable) -> list[Away]:
    """Return the nodes on the CPU, grouped by operator, reason and role: compute first, then the largest groups.

    There are at most ``_LISTED`` groups.
    """
    groups: dict[tuple[str, Reason, str], list[int]] = {}
    operator, reason = numbers(table.operator), numbers(table.reason)
    for index, provider in enumerate(table.providers):
        if provider == "c":
            key = table.operators[operator[index]], table.reasons[reason[index]], table.roles[index]
            groups.setdefault(key, []).append(index)
    modules, places = _texts(table.module, table.modules), _texts(table.place, table.places)
    rows = sorted(groups.items(), key=lambda item: ("cksf".index(item[0][2]), -len(item[1])))
    return [
        Away(
            op,
            why.code,
            why.text,
            len(at),
            _ROLES[role],
            table.names[at[0]],
            "  ".join(texts[at[0]] for texts in (modules, places) if texts and texts[at[0]]),
        )
        for (op, why, role), at in rows[:_LISTED]
    ]


def _texts(column: str, texts: Sequence[str]) -> list[str]:
    """Return the text of each node in a column of numbers, which may be empty; ``""`` for ``-1``."""
    return [texts[index] if index >= 0 else "" for index in numbers(column)]
