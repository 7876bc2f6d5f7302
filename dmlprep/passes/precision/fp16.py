"""FP16 numbers: limits, the rounding loss of a tensor, and tensors that are cast when they are read or saved.

Limits are IEEE 754 binary16's: largest finite 65504, smallest normal 2**-14, smallest subnormal 2**-24.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from dmlprep.graph.model import chunks
from dmlprep.graph.model.tensors import LazyTensor, as_mapped, cut_short, little_endian
from dmlprep.portable.arrays import Array

FP16_MAX = 65504.0
"""Largest finite FP16 value."""
FP16_NORMAL = 2.0**-14
"""Smallest normal FP16 value: below it, digits are lost."""
FP16_TINY = 2.0**-24
"""Smallest FP16 value above zero; half of it and less rounds to zero."""
OVERFLOW = 65520.0
"""From here on, rounding to nearest gives infinity."""

WIDE = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.BFLOAT16})
"""Floating-point types that are converted to FP16."""

_CHUNK = 1 << 20  # bytes: a piece and its copies stay in the processor's cache


def to_half(values: Array, limit: float | None = FP16_MAX) -> NDArray[np.float16]:
    """Round an array to FP16, to nearest even. Finite values beyond ``limit`` become the limit.

    Without a limit (``None``) they become infinite.
    """
    wide = values if values.dtype in (np.float32, np.float64) else values.astype(np.float32)
    # not <= rather than >: a NaN among the values must not hide the others
    if limit is not None and wide.size and not (wide.max() <= limit and wide.min() >= -limit):
        wide = np.where(np.isfinite(wide), np.clip(wide, -limit, limit), wide)
    with np.errstate(over="ignore", under="ignore"):
        return wide.astype(np.float16)


def is_half(tensor: ir.TensorProtocol, limit: float = FP16_MAX) -> bool:
    """Return whether FP16 represents each value of a floating-point tensor exactly, and none is beyond ``limit``.

    NaN and infinity count as exact and within the limit.
    """
    return all(np.array_equal(to_half(part, limit).astype(part.dtype), part, equal_nan=True) for part in pieces(tensor))


@dataclass(frozen=True)
class Loss:
    """The loss of a tensor if it is rounded to FP16.

    Attributes:
        size: number of elements.
        peak: largest finite absolute value.
        over: number of finite elements that would become infinite.
        flushed: number of nonzero elements that would become zero.
        subnormal: number of elements that would keep fewer than 11 bits, flushed ones included.
        norm: root of the sum of squares of the finite values.
        error: root of the sum of squares of the rounding errors (an estimate for normal values); values beyond the
            range count as if clamped to 65504.
    """

    size: int
    peak: float
    over: int
    flushed: int
    subnormal: int
    norm: float
    error: float

    @property
    def relative(self) -> float:
        """``error / norm``: about 2**-12 if every value is normal, 1 if everything is lost; 0 if ``norm`` is 0."""
        return self.error / self.norm if self.norm else 0.0


def measure(tensor: ir.TensorProtocol) -> Loss:
    """Read a floating-point tensor once, in pieces, and return its loss in FP16."""
    size = over = flushed = subnormal = 0
    peak = squares = lost = 0.0
    for part in pieces(tensor):
        values = part if part.dtype in (np.float32, np.float64) else part.astype(np.float32)
        size += values.size
        magnitude = np.abs(values)
        top = float(magnitude.max(initial=0.0))
        if not math.isfinite(top):
            magnitude = magnitude[np.isfinite(magnitude)]
            values = magnitude
            top = float(magnitude.max(initial=0.0))
        peak = max(peak, top)
        # FP32 squares overflow from 1.8e19 on; scale such pieces first
        scale = top if top > 1e15 or (0 < top < 1e-15) else 1.0
        unit = values / scale if scale != 1.0 else values
        square = float(np.vdot(unit, unit)) * scale * scale
        squares += square
        lost += square * 2.0**-24  # normal values: at most 2**-11 each, 2**-12 on average
        odd = magnitude[magnitude < FP16_NORMAL]
        if odd.size:
            zeros = odd.size - int(np.count_nonzero(odd))
            subnormal += odd.size - zeros
            flushed += int(np.count_nonzero(odd <= FP16_TINY / 2)) - zeros
            lost += _squared_error(odd)
        if top >= OVERFLOW:
            beyond = magnitude[magnitude >= OVERFLOW]
            over += beyond.size
            lost += _squared_error(beyond)
    return Loss(size, peak, over, flushed, subnormal, math.sqrt(squares), math.sqrt(lost))


def _squared_error(values: Array) -> float:
    difference = values.astype(np.float64) - to_half(values).astype(np.float64)
    return float(np.vdot(difference, difference))


def pieces(tensor: ir.TensorProtocol) -> Iterator[Array]:
    """Yield the flattened values of a tensor in pieces of at most 1 MiB; a piece is valid until the next one is read.

    The pieces of a ``CastTensor`` are those of its source, cast.
    A tensor in a file is read into one buffer again and again: mapping it would cost a page fault every 4 KiB.

    Raises:
        InputError: the tensor's file has become shorter.
        OSError: the file cannot be read.
    """
    if isinstance(tensor, CastTensor):
        yield from tensor.pieces()
        return
    mapped = as_mapped(tensor)
    if mapped is None or mapped.dtype not in _PLAIN or sys.byteorder != "little":
        yield from chunks(tensor, _CHUNK)
        return
    buffer = np.empty(min(_CHUNK, max(mapped.length, 1)), np.uint8)
    kind = np.dtype(mapped.dtype.numpy())
    remaining = mapped.length
    with open(mapped.path, "rb", buffering=0) as file:
        file.seek(mapped.offset)
        while remaining:
            piece = buffer[: min(remaining, buffer.size)]
            filled = 0
            while filled < piece.size:
                count = file.readinto(piece[filled:].data)
                if not count:
                    raise cut_short(mapped.path, remaining)
                filled += count
            remaining -= piece.size
            yield piece.view(kind)


_PLAIN = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16})


class CastTensor(LazyTensor):
    """A floating-point tensor in another floating-point type, cast in pieces while it is read or saved.

    Args:
        source: the original tensor; it is not read until this tensor is.
        dtype: FLOAT16, FLOAT or DOUBLE.
        limit: for FLOAT16: finite values beyond it become the limit; with ``None`` they become infinite.
        exponent: values are multiplied by ``2**exponent``, which is exact, before the cast.
        clamp: before that, finite values beyond this magnitude are set to it; ``None`` for no change.
    """

    def __init__(
        self,
        source: ir.TensorProtocol,
        dtype: ir.DataType,
        *,
        name: str | None = None,
        limit: float | None = FP16_MAX,
        exponent: int = 0,
        clamp: float | None = None,
    ) -> None:
        super().__init__(source, dtype, source.shape, name if name is not None else source.name, source.doc_string)
        self.source, self.limit, self.exponent, self.clamp = source, limit, exponent, clamp

    def _cast(self, part: Array) -> Array:
        if self.clamp is not None:
            part = np.where(np.isfinite(part), np.clip(part, -self.clamp, self.clamp), part).astype(part.dtype)
        if self.exponent:
            part = np.ldexp(part if part.dtype == np.float64 else part.astype(np.float32), self.exponent)
        if self.dtype == ir.DataType.FLOAT16:
            return to_half(part, self.limit)
        with np.errstate(over="ignore", under="ignore"):
            return part.astype(self.dtype.numpy())

    def pieces(self) -> Iterator[Array]:
        """Yield the flattened and cast values, piece by piece."""
        for part in pieces(self.source):
            yield self._cast(part)

    def numpy(self) -> Array:
        """All values, cast, in the tensor's shape."""
        flat = np.empty(self.size, self.dtype.numpy())
        at = 0
        for part in self.pieces():
            flat[at : at + part.size] = part
            at += part.size
        return flat.reshape(tuple(self.shape.numpy()))

    def tobytes(self) -> bytes:
        """All values, cast, as little-endian bytes."""
        return b"".join(little_endian(part) for part in self.pieces())

    def tofile(self, file: BinaryIO) -> None:
        """Write the cast values at the file's position; about two pieces are in memory at a time."""
        # One thread reads and casts while this one writes: numpy and the file system work without Python's lock.
        with ThreadPoolExecutor(1) as pool:
            pieces = self.pieces()
            ahead = pool.submit(next, pieces, None)
            while (part := ahead.result()) is not None:
                ahead = pool.submit(next, pieces, None)
                file.write(little_endian(part))


_EAGER = 4096  # bytes: below it, a lazy tensor costs more than it saves


def cast_tensor(
    tensor: ir.TensorProtocol,
    dtype: ir.DataType,
    *,
    name: str | None = None,
    limit: float | None = FP16_MAX,
    exponent: int = 0,
    clamp: float | None = None,
) -> ir.TensorProtocol:
    """Return a tensor in another floating-point type; the arguments are those of ``CastTensor``.

    A result of at most 4 KiB is computed immediately. A larger one is a ``CastTensor``.
    """
    lazy = CastTensor(tensor, dtype, name=name, limit=limit, exponent=exponent, clamp=clamp)
    if lazy.nbytes > _EAGER:
        return lazy
    return ir.Tensor(lazy.numpy(), dtype=dtype, name=lazy.name, doc_string=lazy.doc_string)
