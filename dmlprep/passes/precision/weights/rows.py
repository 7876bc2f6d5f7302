"""Tables of embeddings in 8 bits: one scale a row, gathered and multiplied after the rows were."""

from __future__ import annotations

from functools import partial

import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.graph.analysis.knowledge import constant_of
from dmlprep.graph.model.budget import Budget
from dmlprep.graph.model.walk import label, main_graphs
from dmlprep.passes.precision.weights.matmuls import FLOATS, Done, Writing
from dmlprep.passes.precision.weights.slices import SlicePart, Slices

_NARROWEST = 16
"""Columns of a table: the scale of a narrower row takes as much as is saved."""


def write_rows(model: ir.Model, least: int, done: Done, budget: Budget) -> None:
    """Write each Gather of rows of a large constant table with that table in 8 bits. ``done`` is added to."""
    writing = Writing(model, done, budget)
    for graph in main_graphs(model):
        for node in list(graph):
            table = node.inputs[0] if node.op_type == "Gather" and not node.domain else None
            tensor = constant_of(table, model.ir_version)
            if table is None or tensor is None or tensor.dtype not in FLOATS or len(tensor.shape) != 2:
                continue
            narrow = int(tensor.shape.numpy()[1]) < _NARROWEST
            if node.attributes.get_int("axis", 0) not in (0, -2) or int(tensor.size) < least or narrow:
                continue
            numbers, scales = writing.parts(id(tensor), node, table, tensor, partial(_parts, tensor))
            _write(node, tensor.dtype, numbers, scales, writing.at(node))
            done.rows.append(label(node))
    writing.finish()


def _parts(tensor: ir.TensorProtocol, edit: Edit) -> tuple[ir.Value, ...]:
    whole = Slices(tensor, 0, 'set embeddings = "keep", or mend the table')
    numbers, scales = SlicePart(whole, "numbers"), SlicePart(whole, "scales", (whole.count, 1))
    return edit.initializer(numbers, "numbers"), edit.initializer(scales, "scales")


def _write(node: ir.Node, kind: ir.DataType, numbers: ir.Value, scales: ir.Value, edit: Edit) -> None:
    indices, old = node.inputs[1], node.outputs[0]
    shape = list(old.shape.dims) if old.shape is not None else None
    sizes = None if shape is None else [d if isinstance(d, int) else d.value for d in shape]
    row = edit.before("Gather", [numbers, indices], dtype=ir.DataType.INT8, shape=sizes)
    scale = edit.before("Gather", [scales, indices], dtype=kind, shape=None if sizes is None else [*sizes[:-1], 1])
    wide = edit.before("Cast", [row], {"to": int(kind)}, dtype=kind, shape=sizes)
    edit.become(edit.before("Mul", [wide, scale], dtype=kind, shape=sizes))
