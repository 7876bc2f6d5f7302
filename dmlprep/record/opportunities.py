"""Opportunities: changes that would still make a model faster, smaller or safer, with their estimated gain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

LAUNCH_MS, COPY_MS, CPU_NODE_MS = 0.03, 0.05, 0.05
BUS, MEMORY = 10e6, 250e6
"""An assumed GPU, which only orders opportunities by gain.

The first three are milliseconds of a launch, of a copy of any size, and of a node on the CPU. ``BUS`` and ``MEMORY``
are bytes in each millisecond: over PCIe 3.0, and from the device's memory. Launches of 25 to 34 us were measured on an
NVIDIA H200 (docs/figures.md, 2026-11-28). The other numbers are assumptions.
"""

Kind = Literal["prepare", "pin", "fp16", "io", "copies", "unread", "feeds", "dml"]

_SAFER: tuple[Kind, ...] = ("feeds", "dml")


class Opportunity(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change that would make a model faster, smaller or safer, with its estimated gain.

    Attributes:
        kind: ``prepare`` or ``pin`` (fix free sizes). ``fp16`` or ``io``: weights, or inputs and outputs, in FP16.
            ``copies``: an operator stays on the CPU. ``unread``: no node reads some weights. ``feeds`` or ``dml``:
            prove with real inputs, or on DirectML.
        text: the change, as a clause.
        command: the command to type; the user replaces ``FOLDER``.
        nodes: compute nodes that move from the CPU to DirectML.
        launches: how many fewer launches DirectML needs in each run: fused graphs, and nodes outside of them.
        copies, copied_bytes: how many fewer copies between CPU and GPU each run makes, and how many fewer bytes,
            without copies of unknown size. For ``copies``: 0 bytes if any size is unknown.
        fed_bytes: how many fewer bytes of inputs and outputs are copied in each run.
        memory_bytes: how much less memory of the device the model needs at its peak.
        file_bytes: how many fewer bytes the file has.
        milliseconds: how much less time each run takes on an assumed GPU.
    """

    kind: Kind
    text: str
    command: str
    nodes: int = 0
    launches: int = 0
    copies: int = 0
    copied_bytes: int = 0
    fed_bytes: int = 0
    memory_bytes: int = 0
    file_bytes: int = 0
    milliseconds: float = 0.0


def opportunity(kind: Kind, text: str, command: str, **gain: int) -> Opportunity:
    """Return an opportunity with its time on an assumed GPU; ``gain``: its other numbers."""
    one = Opportunity(kind, text, command, **gain)
    read = one.file_bytes if kind == "fp16" else 0  # each run reads all weights
    time = one.launches * LAUNCH_MS + one.copies * COPY_MS + one.nodes * CPU_NODE_MS
    time += (one.copied_bytes + one.fed_bytes) / BUS + read / MEMORY
    return msgspec.structs.replace(one, milliseconds=round(time, 4))


def by_gain(every: Iterable[Opportunity]) -> list[Opportunity]:
    """Return the opportunities that gain something, those with the largest gain first.

    Less time comes first, then smaller files, less memory, and safer proofs. Changes that cost time are left out.
    """
    worth = [
        one
        for one in every
        if one.milliseconds > 0
        or (not one.milliseconds and (one.file_bytes > 0 or one.memory_bytes > 0 or one.kind in _SAFER))
    ]
    return sorted(worth, key=lambda one: (-one.milliseconds, -one.file_bytes, -one.memory_bytes))
