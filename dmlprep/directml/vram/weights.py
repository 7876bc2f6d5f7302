"""What a session keeps of a model's weights on the device, and what it copies on the way there."""

from __future__ import annotations

from collections import Counter
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
    weights = Weights()
    on_dml = [(unit, [v for node in unit.nodes for v in unit.constants(node)]) for unit in units if unit.on_dml]
    readers = Counter(key for _, constants in on_dml for key in {id(value) for value in constants})
    alone: dict[int, Value] = {}
    for unit, constants in on_dml:
        if unit.fused:
            _add_block(weights, unit, lambda value: readers[id(value)] == 1, size, tiled)
        alone.update((id(v), v) for v in constants if not unit.fused or readers[id(v)] > 1)
    for value in alone.values():
        nbytes = size(value) or 0
        weights.kept += committed_bytes(nbytes)
        weights.rising.append(nbytes)
        weights.held.append(Held(value.name, "weights", committed_bytes(nbytes)))
    return weights


def _add_block(found: Weights, unit: Unit, own: Callable[[Value], bool], size: SizeOf, tiled: bool) -> None:
    """What a fused graph keeps of the weights that it alone reads."""
    block = 0
    copied: set[int] = set()
    for node in unit.nodes:
        needed = 0
        for value in filter(own, unit.constants(node)):
            nbytes = size(value) or 0
            needed += kept_bytes(node, value, nbytes, tiled=tiled)
            if id(value) not in copied:
                copied.add(id(value))
                found.shared += committed_bytes(nbytes)
                found.held.append(Held(value.name, "weights", nbytes, node.label))
        block += -(-needed // _ALIGNMENT) * _ALIGNMENT
    if block:
        found.kept += committed_bytes(block)
