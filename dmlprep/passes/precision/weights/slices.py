"""Round tensors to 8 bits with a scale for each slice along one axis: rows of a table, channels of a convolution."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Literal

import numpy as np
import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.model.tensors import LazyTensor
from dmlprep.passes.precision.weights.blocks import BAND, regrouped
from dmlprep.portable.arrays import Array

_TOP = 127
"""Largest magnitude of a number: -128 is unused, so that zero is the middle."""


class Slices:
    """A tensor rounded to int8 (symmetric: zero point 0), with a scale for each index of ``axis``.

    Scales are computed once and stay in memory; the numbers are computed on each call.

    Args:
        source: a tensor of FP32 or FP16; it is read piece by piece.
        fix: the fix that the error names for a tensor with infinity or NaN.
    """

    def __init__(self, source: ir.TensorProtocol, axis: int, fix: str) -> None:
        self.source, self.axis, self.fix = source, axis, fix
        self.sizes = tuple(int(n) for n in source.shape.numpy())
        self.count = self.sizes[axis]
        self._behind = int(np.prod(self.sizes[axis + 1 :], dtype=np.int64))
        self._before = int(np.prod(self.sizes[:axis], dtype=np.int64))
        self._lock = threading.Lock()
        self._scales: Array | None = None

    def scales(self) -> Array:
        """The scales [count], in the tensor's own type.

        Raises:
            ModelRefused: DP415, the tensor contains infinity or NaN.
        """
        with self._lock:
            if self._scales is None:
                top = np.zeros(self.count, np.float32)
                for part, band in self._bands():
                    np.maximum(top[part], np.abs(band).max((0, 2)), out=top[part])  # NaN stays NaN
                with np.errstate(over="ignore"):
                    stored = (top / np.float32(_TOP)).astype(self.source.dtype.numpy())
                if not np.isfinite(stored).all():
                    text, where = "it has infinite or NaN elements", f"weight {self.source.name!r}"
                    raise ModelRefused(text, where=where, code="DP415", fix=self.fix)
                self._scales = stored
            return self._scales

    def numbers(self) -> Array:
        """Compute and return the int8 numbers, in the tensor's shape.

        Raises:
            ModelRefused: DP415, the tensor contains infinity or NaN.
        """
        scales = self.scales().astype(np.float32)
        with np.errstate(divide="ignore"):
            factors = np.where(scales == 0, np.float32(0), 1 / scales)
        result, at = np.empty(self.source.size, np.int8), 0
        for part, band in self._bands():
            np.multiply(band, factors[part][:, None], out=band)
            result[at : at + band.size] = np.clip(np.rint(band, out=band), -_TOP, _TOP, out=band).reshape(-1)
            at += band.size
        return result.reshape(self.sizes)

    def _bands(self) -> Iterator[tuple[slice, Array]]:
        """Yield the values in FP32 in bands [before, slices, behind], each with the range of its slices.

        ``before`` and ``behind`` are the flattened axes before and after the axis of the slices. If ``before`` is 1, a
        band has some of the slices, otherwise all.
        """
        row, at = self._behind * (1 if self._before == 1 else self.count), 0
        for flat in regrouped(self.source, max(1, BAND // row) * row):
            band = flat.reshape(*((1, -1) if self._before == 1 else (-1, self.count)), self._behind)
            yield slice(at, at + band.shape[1]), band
            at += band.shape[1] if self._before == 1 else 0


class SlicePart(LazyTensor):
    """A tensor for the numbers or the scales of a tensor in slices, computed when it is read or saved.

    Scales are [count], or have the given ``shape``.
    """

    def __init__(self, whole: Slices, part: Literal["numbers", "scales"], shape: tuple[int, ...] = ()) -> None:
        self._sizes = whole.sizes if part == "numbers" else shape or (whole.count,)
        dtype = ir.DataType.INT8 if part == "numbers" else whole.source.dtype
        super().__init__(whole, dtype, ir.Shape(self._sizes), None)
        self.whole, self.part = whole, part

    def numpy(self) -> Array:
        """Compute and return all values, in this tensor's shape."""
        return self.whole.numbers() if self.part == "numbers" else self.whole.scales().reshape(self._sizes)
