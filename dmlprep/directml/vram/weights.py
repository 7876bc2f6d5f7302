"""What a session keeps of a model's weights on the device, and what it copies on the way there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dmlprep.directml.targets.facts import Value
from dmlprep.directml.vram.device import committed_bytes, upload_bytes
from dmlprep.directml.vram.fused import SizeOf
from dmlprep.directml.vram.operators import kept_bytes
from dmlprep.directml.vram.units import Unit
from dmlprep.record.memory import Held

_ALIGNMENT = 256
"""Bytes that each operator's part begins at a multiple of, in what DirectML keeps of the weights of a fused graph."""


@dataclass
class Weights:
    """Bytes by where they lie.

    Attributes:
        kept: the device's own memory, as long as the session.
        shared: the machine's memory that the device reads, as long as the session.
        rising: sizes of what goes up through buffers of its own while the session is made.
        held: what is kept, with its names.
    """

    kept: int = 0
    shared: int = 0
    rising: list[int] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)

    @property
    def shared_while_made(self) -> int:
        """The most of the machine's memory while the session is made."""
        return self.shared + upload_bytes(self.rising)


def weights_of(units: Sequence[Unit], size: SizeOf, *, tiled: bool = False) -> Weights:
    """Of all units of a model.

    A fused graph keeps one block, in which every operator has its own copy of the weights that it reads. The provider
    holds the values that it made the block of in the machine's memory until the session ends. A weight that a single
    node reads, or more than one fused graph, has a buffer of its own, and rises through buffers that are let go of.

    Args:
        tiled: as if the rows of every matrix product were a multiple of ``operators.TILE``.
    """
    found = Weights()
    read_by: dict[int, set[int]] = {}
    for number, unit in enumerate(units):
        for node in unit.nodes if unit.on_dml else ():
            for value in unit.constants(node):
                read_by.setdefault(id(value), set()).add(number)
    alone: dict[int, Value] = {}
    for unit in units:
        if not unit.on_dml:
            continue
        if unit.fused:
            _add_block(found, unit, lambda value: len(read_by[id(value)]) == 1, size, tiled)
        for node in unit.nodes:
            for value in unit.constants(node):
                if not unit.fused or len(read_by[id(value)]) > 1:
                    alone.setdefault(id(value), value)
    for value in alone.values():
        nbytes = size(value) or 0
        found.kept += committed_bytes(nbytes)
        found.rising.append(nbytes)
        found.held.append(Held(value.name, "weights", committed_bytes(nbytes)))
    return found


def _add_block(found: Weights, unit: Unit, own: Callable[[Value], bool], size: SizeOf, tiled: bool) -> None:
    """What a fused graph keeps of the weights that it alone reads."""
    block = 0
    copied: set[int] = set()
    for node in unit.nodes:
        needed = 0
        for value in unit.constants(node):
            if not own(value):
                continue
            nbytes = size(value) or 0
            needed += kept_bytes(node, value, nbytes, tiled=tiled)
            if id(value) not in copied:
                copied.add(id(value))
                found.shared += committed_bytes(nbytes)
                found.held.append(Held(value.name, "weights", nbytes, node.label))
        block += -(-needed // _ALIGNMENT) * _ALIGNMENT
    if block:
        found.kept += committed_bytes(block)
