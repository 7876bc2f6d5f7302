"""Estimate what a DirectML session on a model holds of the device's memory. Reads no weights and runs nothing.

``docs/memory.md`` says what is counted, where each rule comes from, and how far estimates are from measurements.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice

import msgspec

from dmlprep.directml.placement import Placement
from dmlprep.directml.placement.crossings import LARGEST
from dmlprep.directml.targets import Target
from dmlprep.directml.targets.facts import GraphFacts, Value
from dmlprep.directml.targets.kernels import Tables
from dmlprep.directml.vram.device import bucket_bytes, pool_bytes, readback_bytes, upload_bytes
from dmlprep.directml.vram.fused import SizeOf
from dmlprep.directml.vram.running import busiest, tensors_of
from dmlprep.directml.vram.savings import ways
from dmlprep.directml.vram.units import Unit, units_of
from dmlprep.directml.vram.upper_bounds import size_at_most
from dmlprep.directml.vram.weights import weights_of
from dmlprep.portable.printable import printable, shortened
from dmlprep.record.memory import Held, MemoryEstimate
from dmlprep.record.nodes import NAME_LENGTH

_SHOWN = 8

_BEYOND = "larger than any machine's memory"


def estimate(graph: GraphFacts, placement: Placement, target: Target, vram: int | None = None) -> MemoryEstimate:
    """What a session needs.

    Args:
        graph: what ``place_facts`` made the placement of.
        vram: bytes of memory that the device has: where that is less, the estimate says what would help.

    Returns:
        its ``unknown`` says why, where a size that counts is free or not known.
    """
    units = _all_units(graph, placement, target.tables)
    size = size_at_most(graph)
    unknown = _unknown(graph, units, size)
    if unknown:
        return MemoryEstimate(unknown=unknown)
    found = _estimated(graph, units, size)
    if max(found.peak, found.shared_peak, found.shared_load) > LARGEST:
        return MemoryEstimate(unknown=f"it is {_BEYOND}")
    if vram is None or found.peak <= vram:
        return found
    less = ways(graph, found.peak, size, lambda other, tiled: _estimated(graph, units, other, tiled=tiled).peak)
    return msgspec.structs.replace(found, ways=less)


def _all_units(graph: GraphFacts, placement: Placement, tables: Tables) -> dict[str, list[Unit]]:
    rows = iter(placement.nodes)
    return {inner.path: units_of(inner, list(islice(rows, len(inner.nodes))), tables) for inner in graph.all_graphs()}


def _estimated(graph: GraphFacts, units: dict[str, list[Unit]], size: SizeOf, *, tiled: bool = False) -> MemoryEstimate:
    weights = weights_of([unit for inner in units.values() for unit in inner], size, tiled=tiled)
    tensors = tensors_of(graph, units, size)
    pool = pool_bytes(tensors.buffers)
    feeds = sum(bucket_bytes(held.nbytes) for held in tensors.about if held.kind in ("input", "output"))
    at, held = busiest(tensors)
    moved = upload_bytes(tensors.up) + (readback_bytes(max(tensors.down)) if tensors.down else 0)
    return MemoryEstimate(
        peak=weights.kept + pool,
        load=weights.kept,
        shared_peak=weights.shared + moved,
        shared_load=weights.shared_while_made,
        weights=weights.kept,
        activations=pool - min(feeds, pool),
        feeds=min(feeds, pool),
        at=_name(at),
        largest=[
            Held(_name(one.name), one.kind, one.nbytes, _name(one.node))
            for one in heapq.nsmallest(_SHOWN, [*weights.held, *held], key=lambda one: (-one.nbytes, one.name))
        ],
    )


def _name(text: str) -> str:
    """A name out of the file, as a record holds it."""
    return shortened(printable(text), NAME_LENGTH)


def _unknown(graph: GraphFacts, units: dict[str, list[Unit]], size: SizeOf) -> str:
    """Why nothing can be said: the first size that is not known, of what lies on the device."""
    for value in _on_device(graph, units):
        if value.type.startswith(("seq(", "optional(", "map(")) or value.type == "string" or size(value) is not None:
            continue
        if value.shape is None:
            return f"the shape of {_name(value.name)} is not known"
        free = [str(dim or "?") for dim in value.shape if not isinstance(dim, int)]
        if free:
            return f"{_name(value.name)} has free sizes: {_name(', '.join(dict.fromkeys(free)))}"
        named = value.dtype is not None
        return f"{_name(value.name)} is {_BEYOND}" if named else f"the type of {_name(value.name)} is not known"
    return ""


def _on_device(graph: GraphFacts, units: dict[str, list[Unit]]) -> Iterator[Value]:
    yield from (value for value in graph.inputs if not value.initializer)
    for inner in units.values():
        for unit in inner:
            if not unit.on_dml:
                continue
            for node in unit.nodes:
                yield from unit.read(node)
                yield from (value for value in node.outputs if value is not None)
