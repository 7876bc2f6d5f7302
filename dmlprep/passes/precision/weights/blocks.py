"""Round weights to numbers of 4 or 8 bits, in blocks along the depth (the summed axis), each with its own scale.

The layout is that of MatMulNBits (ONNX Runtime, docs/ContribOperators.md):

- numbers [columns, blocks, block * bits / 8], the first of two in the low bits
- scales [columns, blocks]
- zero points [columns, blocks * bits / 8], with the same packing
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.model.tensors import LazyTensor
from dmlprep.passes.precision.fp16 import pieces
from dmlprep.portable.arrays import Array

Part = Literal["numbers", "scales", "zeros"]

BAND = 1 << 18
"""Number of elements that are rounded together: few enough for the processor's cache, and enough for numpy."""

_THREADS = 2


@dataclass(frozen=True)
class Blocks:
    """How a weight is rounded.

    Attributes:
        bits: 4 or 8.
        size: how many consecutive numbers of a column share a scale.
        symmetric: whether there are no zero points.
    """

    bits: int
    size: int
    symmetric: bool


class Quantised:
    """A weight in blocks, computed when a part is first needed. Its parts are numbers, scales and zero points.

    One reading computes all parts. Scales and zero points then stay in memory. The numbers, which need most of the
    space, are freed after they were returned.

    Args:
        source: the weight, [depth, columns], or [columns, depth] if ``turned``.
        kind: the element type of the scales.
    """

    def __init__(self, source: ir.TensorProtocol, turned: bool, blocks: Blocks, kind: ir.DataType) -> None:
        self.source, self.turned, self.blocks, self.kind = source, turned, blocks, kind
        first, second = (int(n) for n in source.shape.numpy())
        self.depth, self.columns = (second, first) if turned else (first, second)
        self.count = self.depth // blocks.size
        self._lock = threading.Lock()
        self._cache: dict[Part, Array] = {}

    def shape(self, part: Part) -> tuple[int, ...]:
        """The shape of a part ("numbers", "scales", "zeros")."""
        if part == "numbers":
            return (self.columns, self.count, self.blocks.size * self.blocks.bits // 8)
        return (self.columns, self.count if part == "scales" else -(-self.count * self.blocks.bits // 8))

    def get(self, part: Part) -> Array:
        """The content of a part ("numbers", "scales", "zeros"); computes it if it is not in memory.

        Symmetric blocks have no "zeros".

        Raises:
            ModelRefused: DP415, the weight contains infinity, NaN or values beyond any scale.
        """
        with self._lock:
            if part not in self._cache:
                self._cache = self._computed()
            return self._cache.pop(part) if part == "numbers" else self._cache[part]

    def _computed(self) -> dict[Part, Array]:
        numbers = np.empty(self.shape("numbers"), np.uint8)
        scales = np.empty((self.columns, self.count), self.kind.numpy())
        zeros = np.empty((self.columns, self.count), np.uint8)
        waiting: list[Future[None]] = []
        with ThreadPoolExecutor(_THREADS) as pool:  # numpy works without Python's lock
            for start, band in self._bands():
                waiting.append(pool.submit(self._round, band, start, numbers, scales, zeros))
                if len(waiting) > 2 * _THREADS:
                    waiting.pop(0).result()
            for one in waiting:
                one.result()
        parts: dict[Part, Array] = {"numbers": numbers, "scales": scales}
        return parts if self.blocks.symmetric else {**parts, "zeros": _packed(zeros, self.blocks.bits)}

    def _bands(self) -> Iterator[tuple[int, Array]]:
        """Yield the weight in FP32 in bands of whole blocks, each with the index of its first block.

        A band is [blocks, size, columns]. If the weight is turned, it is [columns, blocks, size], with the index of its
        first column.
        """
        size = self.blocks.size
        row = self.depth if self.turned else size * self.columns
        step = max(1, BAND // row) * row
        start = 0
        for flat in regrouped(self.source, step):
            count = flat.size // row
            yield start, flat.reshape((count, self.count, size) if self.turned else (count, size, self.columns))
            start += count

    def _round(self, band: Array, start: int, numbers: Array, scales: Array, zeros: Array) -> None:
        bits, axis = self.blocks.bits, 2 if self.turned else 1
        low, high = band.min(axis, keepdims=True), band.max(axis, keepdims=True)
        scale, zero = self._scales(low, high)
        stored = scale.astype(self.kind.numpy())
        if not np.isfinite(stored).all():
            raise ModelRefused(
                "the weight has infinite or NaN elements, or values beyond any scale",
                where=f"weight {self.source.name!r}",
                code="DP415",
                fix="list its node in keep_nodes, or fix the weight",
            )
        with np.errstate(divide="ignore"):
            factor = np.where(stored == 0, np.float32(0), np.float32(1) / stored.astype(np.float32))
        if not self.blocks.symmetric:
            zero = np.clip(np.rint(-np.minimum(low, 0) * factor), 0, (1 << bits) - 1)
        np.multiply(band, factor, out=band)
        np.add(band, zero + np.float32(0.5), out=band)
        np.clip(band, 0, (1 << bits) - 0.5, out=band)
        whole: Array = band.astype(np.uint8)
        squeezed, lowest = stored.squeeze(axis), np.broadcast_to(zero, stored.shape).squeeze(axis).astype(np.uint8)
        part = slice(start, start + len(band))
        if self.turned:
            numbers[part], scales[part], zeros[part] = _packed(whole, bits), squeezed, lowest
            return
        if bits == 4:
            whole = whole[:, 0::2] | whole[:, 1::2] << 4
        numbers[:, part], scales[:, part], zeros[:, part] = whole.transpose(2, 0, 1), squeezed.T, lowest.T

    def _scales(self, low: Array, high: Array) -> tuple[Array, Array]:
        middle = np.float32(1 << self.blocks.bits - 1)
        with np.errstate(invalid="ignore", over="ignore"):
            if self.blocks.symmetric:
                # The farthest value gets the lowest number: there is one more number below the middle than above it.
                scale = np.where(-low > high, low, high) / -middle
            else:
                scale = (np.maximum(high, 0) - np.minimum(low, 0)) / np.float32((1 << self.blocks.bits) - 1)
        return np.asarray(scale), np.asarray(middle)


def _packed(numbers: Array, bits: int) -> Array:
    """Pack numbers of 4 bits along the last axis, two in a byte, the first in the low bits; 8 bits are unchanged."""
    if bits == 8:
        return numbers
    if numbers.shape[-1] % 2:
        numbers = np.concatenate([numbers, np.zeros((*numbers.shape[:-1], 1), np.uint8)], -1)
    pairs: Array = numbers[..., 0::2] | numbers[..., 1::2] << 4
    return pairs


def regrouped(tensor: ir.TensorProtocol, count: int) -> Iterator[Array]:
    """Yield the flattened values in FP32, ``count`` at a time; the caller may change each array."""
    count = min(count, int(tensor.size))
    buffer, filled = np.empty(count, np.float32), 0
    for piece in pieces(tensor):
        at = 0
        while at < piece.size:
            take = min(count - filled, piece.size - at)
            buffer[filled : filled + take] = piece[at : at + take]
            filled, at = filled + take, at + take
            if filled == count:
                yield buffer
                buffer, filled = np.empty(count, np.float32), 0
    if filled:
        yield buffer[:filled]


class PartTensor(LazyTensor):
    """A tensor for one part of a weight in blocks (numbers, scales or zero points), computed when it is read."""

    def __init__(self, whole: Quantised, part: Part) -> None:
        dtype = whole.kind if part == "scales" else ir.DataType.UINT8
        super().__init__(whole, dtype, ir.Shape(whole.shape(part)), None)
        self.whole, self.part = whole, part

    def numpy(self) -> Array:
        """Compute and return all values, in the shape of the part."""
        return self.whole.get(self.part)
