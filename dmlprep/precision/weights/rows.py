"""Tables of embeddings in 8 bits: one scale a row, gathered and multiplied after the rows were."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir

from dmlprep.analysis.knowledge import constant_of
from dmlprep.errors import ModelRefused
from dmlprep.model.budget import Budget
from dmlprep.model.tensors import AsArray
from dmlprep.model.walk import label, main_graphs
from dmlprep.precision.weights.blocks import regrouped
from dmlprep.precision.weights.matmuls import Done, drop_unused
from dmlprep.quirks.editing import Edit
from dmlprep.rewriting.names import Names

__all__ = ["write_rows"]

Array = np.ndarray[Any, Any]

_BAND = 1 << 18
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
_TOP = 127
_NARROWEST = 16
"""Columns of a table: the scale of a narrower row takes as much as is saved."""


class _Rows:
    """A table of [rows, width] elements in 8 bits, a scale a row. The scales stay in memory, the numbers do not."""

    def __init__(self, source: ir.TensorProtocol) -> None:
        self.source = source
        self.rows, self.width = (int(n) for n in source.shape.numpy())
        self._scales: Array | None = None

    def scales(self) -> Array:
        """[rows, 1], in the table's own type.

        Raises:
            ModelRefused: DP415, the table holds infinity or no number at all.
        """
        if self._scales is None:
            found = [np.abs(band).max(1, keepdims=True) / np.float32(_TOP) for band in self._bands()]
            stored = np.concatenate(found).astype(self.source.dtype.numpy())
            if not np.isfinite(stored).all():
                raise ModelRefused(
                    "the table holds infinity, or what is no number",
                    where=f"weight {self.source.name!r}",
                    code="DP415",
                    fix='set embeddings = "keep", or mend the table',
                )
            self._scales = stored
        return self._scales

    def numbers(self) -> Array:
        """[rows, width], int8."""
        scales, found, at = self.scales().astype(np.float32), np.empty((self.rows, self.width), np.int8), 0
        with np.errstate(divide="ignore"):
            factors = np.where(scales == 0, np.float32(0), 1 / scales)
        for band in self._bands():
            part = slice(at, at + len(band))
            np.multiply(band, factors[part], out=band)
            found[part] = np.clip(np.rint(band, out=band), -_TOP, _TOP, out=band)
            at += len(band)
        return found

    def _bands(self) -> Any:
        step = max(1, _BAND // self.width) * self.width
        for flat in regrouped(self.source, step):
            yield flat.reshape(-1, self.width)


class _RowsPart(AsArray):
    """Numbers or scales of a table, computed when they are read or saved."""

    def __init__(self, whole: _Rows, numbers: bool) -> None:
        self.name: str | None = None
        self.doc_string: str | None = None
        self.metadata_props: MutableMapping[str, str] = {}
        self.meta: MutableMapping[str, Any] = {}
        self.whole, self.holds_numbers = whole, numbers
        self.dtype = ir.DataType.INT8 if numbers else whole.source.dtype
        self.shape: ir.ShapeProtocol = ir.Shape((whole.rows, whole.width if numbers else 1))
        self.raw: Any = whole

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape.numpy()))

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.size * self.dtype.bitwidth // 8

    def numpy(self) -> Array:
        """All values, [dims]."""
        return self.whole.numbers() if self.holds_numbers else self.whole.scales()

    def tobytes(self) -> bytes:
        """All values, little-endian."""
        found = self.numpy()
        return np.ascontiguousarray(found, found.dtype.newbyteorder("<")).tobytes()

    def tofile(self, file: BinaryIO) -> None:
        """Append the values to a file."""
        file.write(self.tobytes())


def write_rows(model: ir.Model, least: int, done: Done, budget: Budget | None = None) -> None:
    """Write each Gather of rows of a large constant table with that table in 8 bits. ``done`` is added to."""
    names = Names(model)
    made: dict[int, tuple[ir.Value, ir.Value]] = {}
    tables: list[ir.Value] = []
    for graph in main_graphs(model):
        for node in list(graph):
            table = node.inputs[0] if node.op_type == "Gather" and not node.domain else None
            tensor = constant_of(table, model.ir_version)
            if table is None or tensor is None or tensor.dtype not in _FLOATS or len(tensor.shape) != 2:
                continue
            narrow = int(tensor.shape.numpy()[1]) < _NARROWEST
            if node.attributes.get_int("axis", 0) not in (0, -2) or int(tensor.size) < least or narrow:
                continue
            edit = Edit(graph, node, names, budget)
            if id(tensor) not in made:
                whole, top = _Rows(tensor), Edit(model.graph, node, names, budget)
                made[id(tensor)] = (
                    top.initializer(_RowsPart(whole, True), "numbers"),
                    top.initializer(_RowsPart(whole, False), "scales"),
                )
                done.before += int(tensor.nbytes)
                done.after += sum(int(v.const_value.nbytes) for v in made[id(tensor)] if v.const_value is not None)
            _write(node, tensor.dtype, *made[id(tensor)], edit)
            tables.append(table)
            done.rows.append(label(node))
    drop_unused(tables)


def _write(node: ir.Node, kind: ir.DataType, numbers: ir.Value, scales: ir.Value, edit: Edit) -> None:
    indices, old = node.inputs[1], node.outputs[0]
    shape = list(old.shape.dims) if old.shape is not None else None
    sizes = None if shape is None else [d if isinstance(d, int) else d.value for d in shape]
    row = edit.before("Gather", [numbers, indices], dtype=ir.DataType.INT8, shape=sizes)
    scale = edit.before("Gather", [scales, indices], dtype=kind, shape=None if sizes is None else [*sizes[:-1], 1])
    wide = edit.before("Cast", [row], {"to": int(kind)}, dtype=kind, shape=sizes)
    edit.become(edit.before("Mul", [wide, scale], dtype=kind, shape=sizes))
