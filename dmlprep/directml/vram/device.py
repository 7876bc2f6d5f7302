"""The rounding of buffer sizes, in bytes, by ONNX Runtime's DirectML provider and Direct3D 12.

Sources: ONNX Runtime, ``core/providers/dml/DmlExecutionProvider/src`` (BucketizedBufferAllocator, PooledUploadHeap,
ReadbackHeap); D3D12_DEFAULT_RESOURCE_PLACEMENT_ALIGNMENT. Measured on 1.30.0: ``docs/memory.md``.
"""

from __future__ import annotations

from collections.abc import Iterable

from dmlprep.graph.analysis.liveness import Buffer, live_peak

PAGE = 1 << 16
"""Bytes: the size of every buffer of Direct3D 12 is a multiple of this; the smallest tensor buffer has this size."""

_CHUNK = 1 << 20
"""Bytes of the smallest buffer for copies to or from the device."""


def committed_bytes(nbytes: int) -> int:
    """Round a size in bytes up to that of a separate buffer: for weights, and for DirectML's copies of them."""
    return -(-max(nbytes, 1) // PAGE) * PAGE


def bucket_bytes(nbytes: int) -> int:
    """Round a size in bytes up to that of a tensor's buffer in a run: a power of two, so that it can be used again."""
    return max(PAGE, 1 << (max(nbytes, 1) - 1).bit_length())


def upload_bytes(sizes: Iterable[int]) -> int:
    """Total size in bytes of the upload buffers for tensors of these sizes, uploaded together.

    Several tensors share a buffer. A new buffer is at least as large as all before it together, so that there are few.
    """
    total = room = 0
    for size in sizes:
        if size > room:
            room = max(total, _CHUNK, size)
            total += room
        room -= min(size, room)
    return total


def readback_bytes(largest: int) -> int:
    """Size in bytes of the one buffer for copies of outputs to the CPU: it doubles until the largest output fits."""
    return max(_CHUNK, 1 << (max(largest, 1) - 1).bit_length())


def pool_bytes(buffers: Iterable[Buffer]) -> int:
    """Total size in bytes of the device buffers that one session makes for its tensors; ``buffers`` are the tensors.

    A buffer that is no longer needed is used for the next tensor with the same rounded size; no buffer is freed.
    """
    by_size: dict[int, list[Buffer]] = {}
    for one in buffers:
        size = bucket_bytes(one.nbytes)
        by_size.setdefault(size, []).append(Buffer(one.name, size, one.first, one.last))
    return sum(live_peak(same).nbytes for same in by_size.values())
