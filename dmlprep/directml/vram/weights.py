"""The memory on the device for a model's weights during a session, and the copies on the way there."""

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
"""Bytes: the alignment of each operator's part, in DirectML's copy of the weights of a fused graph."""


@dataclass
class Weights:
    """The memory for weights, in bytes.

    Attributes:
        dedicated: the device's own memory, for the whole session.
        shared: system memory that the device reads, for the whole session.
        rising: size of each weight that is uploaded through buffers in system memory while the session is created.
        held: each weight in ``dedicated``, with its name and size; in a fused graph, the size without further copies.
    """

    dedicated: int = 0
    shared: int = 0
    rising: list[int] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)

    @property
    def shared_while_made(self) -> int:
        """The most system memory in use while the session is created, in bytes."""
        return self.shared + upload_bytes(self.rising)


def weights_of(units: Sequence[Unit], size: SizeOf, *, tiled: bool = False) -> Weights:
    """Return the memory for the weights of all units (fused graphs and single nodes) of a model.

    A fused graph keeps one block, in which every operator has its own copy of its weights. The provider keeps the
    values from which it made the block in system memory until the session ends. A weight that a single node reads, or
    more than one fused graph, has a separate buffer. It is uploaded through buffers that are freed afterwards.

    Args:
        tiled: assume that the rows of every matrix product are a multiple of ``operators.TILE``.
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
        weights.dedicated += committed_bytes(nbytes)
        weights.rising.append(nbytes)
        weights.held.append(Held(value.name, "weights", committed_bytes(nbytes)))
    return weights


def _add_block(weights: Weights, unit: Unit, own: Callable[[Value], bool], size: SizeOf, tiled: bool) -> None:
    """Add to ``weights`` the memory of a fused graph for the weights for which ``own`` returns True."""
    block = 0
    copied: set[int] = set()
    for node in unit.nodes:
        needed = 0
        for value in filter(own, unit.constants(node)):
            nbytes = size(value) or 0
            needed += kept_bytes(node, value, nbytes, tiled=tiled)
            if id(value) not in copied:
                copied.add(id(value))
                weights.shared += committed_bytes(nbytes)
                weights.held.append(Held(value.name, "weights", nbytes, node.label))
        block += -(-needed // _ALIGNMENT) * _ALIGNMENT
    if block:
        weights.dedicated += committed_bytes(block)
