"""Tables of embeddings in 8 bits: one scale a row, gathered and multiplied after the rows were."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.graph.analysis.knowledge import constant_of
from dmlprep.graph.model.budget import Budget
from dmlprep.graph.model.walk import label, main_graphs
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.precision.weights.matmuls import Done, drop_unused
from dmlprep.passes.precision.weights.slices import SlicePart, Slices

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
_NARROWEST = 16
"""Columns of a table: the scale of a narrower row takes as much as is saved."""


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
                whole = Slices(tensor, 0, 'set embeddings = "keep", or mend the table')
                top = Edit(model.graph, node, names, budget)
                made[id(tensor)] = (
                    top.initializer(SlicePart(whole, "numbers"), "numbers"),
                    top.initializer(SlicePart(whole, "scales", (whole.count, 1)), "scales"),
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
