"""Estimate the device memory that a DirectML session on a model needs. Reads no weights and runs no model.

``docs/memory.md`` describes the parts of the estimate, the source of each rule, and the error of estimates.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from math import prod

import msgspec

from dmlprep.directml.placement import Placement
from dmlprep.directml.placement.place import LARGEST, nbytes
from dmlprep.directml.placement.table import recorded_name
from dmlprep.directml.targets import Target
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.directml.vram.device import bucket_bytes, pool_bytes, readback_bytes, upload_bytes
from dmlprep.directml.vram.fused import SizeOf
from dmlprep.directml.vram.operators import TILE
from dmlprep.directml.vram.running import busiest, tensors_of
from dmlprep.directml.vram.units import Unit, units_of
from dmlprep.directml.vram.weights import weights_of
from dmlprep.record.memory import Held, MemoryEstimate, Way

_SHOWN = 8

_BEYOND = "larger than any machine's memory"


def estimate(graph: GraphFacts, placement: Placement, target: Target, vram: int | None = None) -> MemoryEstimate:
    """Estimate the memory that a session needs.

    Args:
        graph: the graph from which ``place_facts`` made the placement.
        vram: memory of the device in bytes. If it is too little, the estimate lists ways to need less; with ``None`` it
            lists none.

    Returns:
        the estimate. If a needed size is free, unknown or absurdly large, its ``unknown`` is the reason.
    """
    units = _units(graph, placement, target)
    size = _size_at_most(graph)
    unknown = _unknown(graph, units, size)
    if unknown:
        return MemoryEstimate(unknown=unknown)
    result = _estimated(graph, units, size)
    if max(result.peak, result.shared_peak, result.shared_load) > LARGEST:
        return MemoryEstimate(unknown=f"it is {_BEYOND}")
    if vram is None or result.peak <= vram:
        return result
    less = ways(graph, result.peak, size, lambda other, tiled: _estimated(graph, units, other, tiled=tiled).peak)
    return msgspec.structs.replace(result, ways=less)


def peak_in_half(graph: GraphFacts, placement: Placement, target: Target) -> int:
    """Return the device memory in bytes if FP32 and FP64 tensors had half their sizes; only for a known need."""
    return _estimated(graph, _units(graph, placement, target), _changed(_size_at_most(graph), _half)).peak


def _units(graph: GraphFacts, placement: Placement, target: Target) -> dict[str, list[Unit]]:
    rows = iter(placement.nodes)
    return {g.path: units_of(g, list(islice(rows, len(g.nodes))), target.tables) for g in graph.all_graphs()}


def _estimated(graph: GraphFacts, units: dict[str, list[Unit]], size: SizeOf, *, tiled: bool = False) -> MemoryEstimate:
    weights = weights_of([unit for inner in units.values() for unit in inner], size, tiled=tiled)
    tensors = tensors_of(graph, units, size)
    pool = pool_bytes(tensors.buffers)
    feeds = sum(bucket_bytes(held.nbytes) for held in tensors.about if held.kind in ("input", "output"))
    at, held = busiest(tensors)
    moved = upload_bytes(tensors.up) + (readback_bytes(max(tensors.down)) if tensors.down else 0)
    return MemoryEstimate(
        peak=weights.dedicated + pool,
        load=weights.dedicated,
        shared_peak=weights.shared + moved,
        shared_load=weights.shared_while_made,
        weights=weights.dedicated,
        activations=pool - min(feeds, pool),
        feeds=min(feeds, pool),
        at=recorded_name(at),
        largest=[
            Held(recorded_name(one.name), one.kind, one.nbytes, recorded_name(one.node))
            for one in heapq.nsmallest(_SHOWN, [*weights.held, *held], key=lambda one: (-one.nbytes, one.name))
        ],
    )


def _unknown(graph: GraphFacts, units: dict[str, list[Unit]], size: SizeOf) -> str:
    """The reason why there is no estimate: the first unknown size of a value on the device; empty if all are known.

    Strings, sequences, optionals and maps are skipped.
    """
    for value in _on_device(graph, units):
        if value.type.startswith(("seq(", "optional(", "map(")) or value.type == "string" or size(value) is not None:
            continue
        if value.shape is None:
            return f"the shape of {recorded_name(value.name)} is unknown"
        free = [str(dim or "?") for dim in value.shape if not isinstance(dim, int)]
        if free:
            return f"{recorded_name(value.name)} has free sizes: {recorded_name(', '.join(dict.fromkeys(free)))}"
        return (
            f"{recorded_name(value.name)} is {_BEYOND}"
            if value.dtype is not None
            else f"the type of {recorded_name(value.name)} is unknown"
        )
    return ""


def _on_device(graph: GraphFacts, units: dict[str, list[Unit]]) -> Iterator[Value]:
    yield from (value for value in graph.inputs if not value.initializer)
    for unit in (unit for inner in units.values() for unit in inner if unit.on_dml):
        for node in unit.nodes:
            yield from (*unit.read(node), *filter(None, node.outputs))


def _largest_sizes(graph: GraphFacts) -> dict[str, int]:
    """Name of a free dimension -> its largest possible size, where the node that makes it shows that (NonZero)."""
    sizes: dict[str, int] = {}
    for node in graph.all_nodes():
        most = _most(node)
        for dim in (d for v in node.outputs if v is not None and most is not None for d in v.shape or ()):
            if isinstance(dim, str) and dim:
                sizes[dim] = max(sizes.get(dim, 0), most or 0)
    return sizes


def _size_at_most(graph: GraphFacts) -> SizeOf:
    """Return a function that returns the largest possible size of a value in bytes; ``None`` if that is unknown."""
    bounds = _largest_sizes(graph)

    def size(value: Value) -> int | None:
        known = nbytes(value)
        if known is not None or value.shape is None or value.dtype is None or not bounds:
            return known
        sizes = [dim if isinstance(dim, int) else bounds.get(dim or "") for dim in value.shape]
        if None in sizes:
            return None
        most = (prod(size or 0 for size in sizes) * value.dtype.bitwidth + 7) // 8
        return most if most <= LARGEST else None

    return size


def _most(node: NodeFacts) -> int | None:
    """The most elements that a node can select (NonZero, Unique, Compress, NonMaxSuppression).

    ``None`` for other operators, or if a needed shape is unknown.
    """
    first = node.input(0)
    if first is None or not first.static:
        return None
    if node.key in ("NonZero", "Unique", "Compress"):
        return first.size
    scores = node.input(1)
    if node.key != "NonMaxSuppression" or scores is None or not scores.static or scores.rank != 3:
        return None
    batch, classes, boxes = scores.sizes
    limit = node.input(2)
    wanted = (limit.integers() or [boxes])[0] if limit is not None else 0
    return batch * classes * max(min(boxes, wanted), 0)


_WORTH = 0.97
"""A way to need less is listed if its peak is below this share of the unchanged model's peak."""

_Change = Callable[[Value, int], int]
"""A function of a value and its size in bytes, which returns its size in bytes after the change."""

_INT4_BITS = 4.5
"""Bits for each weight: four, and one FP16 scale for every 32 (MatMulNBits with blocks of 32)."""


def ways(graph: GraphFacts, peak: int, size: SizeOf, peak_with: Callable[[SizeOf, bool], int]) -> list[Way]:
    """Return ways to need at least 3 % less device memory, the best first; they are estimated, not tried.

    Args:
        peak: bytes of the device's own memory for the unchanged model.
        size: sizes of the unchanged model's values.
        peak_with: returns the peak for other sizes of values. If its second argument is true, it assumes that the rows
            of matrix products are multiples of ``TILE``.
    """
    tried: list[tuple[str, str, _Change]] = [
        ("FP16", "dmlprep prepare with an FP16 recipe (@vision-fp16, @transformer-fp16)", _half),
        ("INT4 weights", "weights of 4 bits in blocks (MatMulNBits), where the accuracy allows", _int4),
    ]
    batch = _batch(graph)
    if batch > 1:
        tried.append(("batch 1", "a batch of 1, run more often", partial(_smaller, batch)))
    if _pictures(graph):
        tried.append(("half the height and width", "the picture in tiles of half its height and width", _tile))
    every = [Way(how, option, peak_with(_changed(size, change), False)) for how, option, change in tried]
    every.append(Way(f"rows in {TILE}s", f"sizes (a sequence) that are a multiple of {TILE}", peak_with(size, True)))
    return sorted((way for way in every if way.peak < _WORTH * peak), key=lambda way: way.peak)


def _changed(size: SizeOf, change: _Change) -> SizeOf:
    def changed(value: Value) -> int | None:
        whole = size(value)
        return None if whole is None else change(value, whole)

    return changed


def _half(value: Value, whole: int) -> int:
    return whole // 2 if value.type in ("float", "double") else whole


def _int4(value: Value, whole: int) -> int:
    is_matrix = value.constant and value.rank == 2 and value.type in ("float", "float16")
    if not is_matrix or not any(node.key in ("MatMul", "Gemm") for node in value.consumers):
        return whole
    return int((value.size or 0) * _INT4_BITS) // 8


def _batch(graph: GraphFacts) -> int:
    """The first dimension, if it is one number in all inputs with two or more dimensions; 1 otherwise."""
    sizes = {value.shape[0] for value in graph.inputs if not value.initializer and value.shape and len(value.shape) > 1}
    only = next(iter(sizes)) if len(sizes) == 1 else 1
    return only if isinstance(only, int) else 1


def _smaller(batch: int, value: Value, whole: int) -> int:
    first = value.shape[0] if value.shape and not value.constant else None
    return whole // batch if isinstance(first, int) and first % batch == 0 else whole


def _pictures(graph: GraphFacts) -> bool:
    """Return whether an input is a floating-point picture [N, C, H, W] of at least 256 x 256."""
    fed = (v for v in graph.inputs if not v.initializer and v.type in ("float", "float16") and v.rank == 4)
    return any(all(isinstance(side, int) and side >= 256 for side in value.dims[2:]) for value in fed)


def _tile(value: Value, whole: int) -> int:
    return whole // 4 if not value.constant and value.rank == 4 else whole
