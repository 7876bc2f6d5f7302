"""All nodes of a model as a ribbon: a lane for DirectML, one for the CPU, fused partitions above, copies below."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

from dmlprep.core.text.sizes import bytes_text
from dmlprep.record.nodes import NodeTable, Reason, numbers

WIDTH = 1000.0
"""Width of a ribbon, and its largest number of columns."""

Kind = Literal["dml", "single", "cpu"]

_RANK: dict[Kind, int] = {"dml": 0, "single": 1, "cpu": 2}
_APART = 120
"""Most nodes for a ribbon with a cell for each."""

_LISTED = 60
"""Most crossings and groups of nodes in a list."""

_REACH = 13.0
"""Height of the longest tick."""


class Cell(NamedTuple):
    """Nodes side by side that run at the same place; of several in one column the worst: CPU, then FP32."""

    kind: Kind
    x: float
    width: float


class Band(NamedTuple):
    """Nodes side by side of one fused partition; ``odd`` changes from one partition to the next."""

    x: float
    width: float
    odd: bool


class Tick(NamedTuple):
    """Tensors that are copied before the node at ``x``; ``height`` grows with the logarithm of their bytes."""

    x: float
    height: float
    up: bool


class Copied(NamedTuple):
    """One crossing in the list."""

    value: str
    up: bool
    producer: str
    consumer: str
    size: str


@dataclass(frozen=True)
class Away:
    """Nodes on the CPU for one reason."""

    operator: str
    code: str
    why: str
    count: int
    role: str
    first: str


@dataclass(frozen=True)
class Ribbon:
    """The figure of one placement; ``cut`` crossings are not listed. ``apart``: each node has its own cell."""

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
    """Return where each node runs; ``single``: on DirectML in FP32 although the steps make FP16 (``half``)."""
    return [
        "cpu" if provider == "c" else "single" if half and floats == "s" else "dml"
        for provider, floats in zip(table.providers, table.floats, strict=True)
    ]


def ribbon(table: NodeTable, name: str, *, half: bool) -> Ribbon:
    """Return the ribbon of a table, at most ``WIDTH`` cells; ``half``: whether the steps make FP16."""
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
    """Return nodes on the CPU by operator and reason, most first, compute before the rest."""
    groups: dict[tuple[str, Reason, str], list[int]] = {}
    operator, reason = numbers(table.operator), numbers(table.reason)
    for index, provider in enumerate(table.providers):
        if provider == "c":
            key = table.operators[operator[index]], table.reasons[reason[index]], table.roles[index]
            groups.setdefault(key, []).append(index)
    rows = sorted(groups.items(), key=lambda item: ("cksf".index(item[0][2]), -len(item[1])))
    return [
        Away(op, why.code, why.text, len(at), _ROLES[role], table.names[at[0]])
        for (op, why, role), at in rows[:_LISTED]
    ]
