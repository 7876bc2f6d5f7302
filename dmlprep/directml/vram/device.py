"""How ONNX Runtime's DirectML provider and Direct3D 12 round what they are asked for, in bytes.

Sources: ONNX Runtime, ``core/providers/dml/DmlExecutionProvider/src`` (BucketizedBufferAllocator, PooledUploadHeap,
ReadbackHeap); D3D12_DEFAULT_RESOURCE_PLACEMENT_ALIGNMENT. Measured on 1.30.0: ``docs/memory.md``.
"""

from __future__ import annotations

from collections.abc import Iterable

from dmlprep.graph.analysis.liveness import Buffer, live_peak

PAGE = 1 << 16
"""Bytes that every buffer of Direct3D 12 takes a multiple of; the smallest bucket has as many."""

_CHUNK = 1 << 20
"""Bytes of the smallest buffer that goes up or comes down."""


def committed_bytes(nbytes: int) -> int:
    """What a buffer of its own takes: weights, and what DirectML keeps of them."""
    return -(-max(nbytes, 1) // PAGE) * PAGE


def bucket_bytes(nbytes: int) -> int:
    """What a tensor of a run takes: a power of two, so that its buffer can be used again."""
    return max(PAGE, 1 << (max(nbytes, 1) - 1).bit_length())


def upload_bytes(sizes: Iterable[int]) -> int:
    """Buffers that hold all of this on its way up, none of which is used again meanwhile.

    Each new one is as large as all before it, so that there are few.
    """
    total = room = 0
    for size in sizes:
        if size > room:
            room = max(total, _CHUNK, size)
            total += room
        room -= min(size, room)
    return total


def readback_bytes(largest: int) -> int:
    """The buffer through which outputs come down, one after the other: it doubles until the largest fits."""
    return max(_CHUNK, 1 << (max(largest, 1) - 1).bit_length())


def pool_bytes(buffers: Iterable[Buffer]) -> int:
    """All buffers that one session ever makes for its tensors.

    One that is no longer needed serves the next tensor whose size rounds to the same; none is given back.
    """
    by_size: dict[int, list[Buffer]] = {}
    for one in buffers:
        size = bucket_bytes(one.nbytes)
        by_size.setdefault(size, []).append(Buffer(one.name, size, one.first, one.last))
    return sum(live_peak(same).nbytes for same in by_size.values())
