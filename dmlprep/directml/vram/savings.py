"""What would make a model need less of the device's memory, and how much it would need then."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dmlprep.directml.targets.facts import GraphFacts, Value
from dmlprep.directml.vram.fused import SizeOf
from dmlprep.directml.vram.operators import TILE
from dmlprep.record.memory import Way

_WORTH = 0.97
"""Share of today's peak below which a way is worth naming."""

_Change = Callable[[Value, int], int]
"""From a value and its bytes to its bytes where the way is taken."""

_INT4_BITS = 4.5
"""Bits a weight: four, and one FP16 scale for every 32 (MatMulNBits with blocks of 32)."""


def ways(graph: GraphFacts, peak: int, size: SizeOf, peak_with: Callable[[SizeOf, bool], int]) -> list[Way]:
    """Ways that help, the best first.

    Args:
        peak: bytes of the device's own memory as the model is.
        peak_with: the same with other sizes of its values, and where asked with rows that fill tiles.
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
    """The size of the first dimension of every input that has two or more; 1 where they differ."""
    sizes = {value.shape[0] for value in graph.inputs if not value.initializer and value.shape and len(value.shape) > 1}
    only = next(iter(sizes)) if len(sizes) == 1 else 1
    return only if isinstance(only, int) else 1


def _smaller(batch: int, value: Value, whole: int) -> int:
    first = value.shape[0] if value.shape and not value.constant else None
    return whole // batch if isinstance(first, int) and first % batch == 0 else whole


def _pictures(graph: GraphFacts) -> bool:
    """Whether the model takes a picture of some size: [N, C, H, W] in floats."""
    fed = (v for v in graph.inputs if not v.initializer and v.type in ("float", "float16") and v.rank == 4)
    return any(all(isinstance(side, int) and side >= 256 for side in value.dims[2:]) for value in fed)


def _tile(value: Value, whole: int) -> int:
    return whole // 4 if not value.constant and value.rank == 4 else whole
