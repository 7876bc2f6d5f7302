"""Store constant weights of Conv and ConvTranspose, and embedding tables, in 8 bits with one scale for each slice.

A slice is an output channel of a convolution or a row of a table. A convolution reads its weight through
com.microsoft's DequantizeLinear: DirectML computes it right at every opset, also in FP16. ONNX's own DequantizeLinear
has FP16 scales only from opset 19 on. With a scale for each channel, DirectML computes it wrongly at opset 21 up to
ONNX Runtime 1.24 (DP606), and has no kernel for it from opset 23 on (``tests/benchmarks/int8_convolutions.py``). Rows
of a table are gathered, then multiplied by their scales.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.graph.analysis.knowledge import constant_of
from dmlprep.graph.model.budget import Budget
from dmlprep.graph.model.walk import label, main_graphs
from dmlprep.passes.precision.weights.matmuls import DOMAIN, FLOATS, Choice, Done, Writing, is_last, too_small
from dmlprep.passes.precision.weights.slices import SlicePart, Slices

_AXES = {"Conv": 0, "ConvTranspose": 1}
"""The axis of a weight with one scale for each index: the output channels. Groups of a ConvTranspose share scales."""

_FEWEST = 16
"""The fewest elements of a channel. With fewer, its scale and zero point need as much space as 8 bits save."""

_NARROWEST = 16
"""The fewest columns of a table. With fewer, the scale of a row needs as much space as 8 bits save."""


@dataclass(frozen=True)
class _Convolution:
    """A convolution with a constant weight; ``axis`` is the weight's axis of output channels."""

    node: ir.Node
    weight: ir.Value
    tensor: ir.TensorProtocol
    axis: int


def write_convolutions(model: ir.Model, choice: Choice, done: Done, budget: Budget) -> None:
    """Rewrite each convolution with a large constant weight in place, with a weight of 8 bits; report in ``done``.

    ``choice`` says which convolutions stay unchanged.
    """
    writing = Writing(model, done, budget)
    for conv in [*_convolutions(model)]:
        name, why = label(conv.node), _stays(conv, choice)
        if why:
            done.unchanged[name] = why
            continue
        parts = writing.parts(id(conv.tensor), conv.node, conv.weight, conv.tensor, partial(_parts, conv))
        _write(conv, parts, writing.at(conv.node))
        done.convolutions.append(name)
    writing.finish(DOMAIN)


def convolutions_to_round(model: ir.Model, choice: Choice) -> dict[ir.Node, int]:
    """The convolutions of the main graph that ``write_convolutions`` would rewrite -> size of its weight in bytes."""
    return {
        conv.node: int(conv.tensor.nbytes)
        for conv in _convolutions(model)
        if conv.node.graph is model.graph and not _stays(conv, choice)
    }


def _convolutions(model: ir.Model) -> Iterator[_Convolution]:
    for graph in main_graphs(model):
        for node in graph:
            weight = node.inputs[1] if not node.domain and node.op_type in _AXES and len(node.inputs) > 1 else None
            tensor = constant_of(weight, model.ir_version)
            if weight is not None and tensor is not None and tensor.dtype in FLOATS and len(tensor.shape) > 2:
                yield _Convolution(node, weight, tensor, _AXES[node.op_type])


def _stays(conv: _Convolution, choice: Choice) -> str:
    """Return why a convolution stays unchanged; empty if it is to be rewritten."""
    if id(conv.node) in choice.keep:
        return choice.keep[id(conv.node)]
    if choice.last is None and is_last(conv.node):
        return "it is the last layer"
    if small := too_small(conv.tensor, choice):
        return small
    if int(conv.tensor.size) < _FEWEST * int(conv.tensor.shape.numpy()[conv.axis]):
        return f"fewer than {_FEWEST} of its numbers share a scale"
    return ""


def _parts(conv: _Convolution, edit: Edit) -> tuple[ir.Value, ...]:
    whole = Slices(conv.tensor, conv.axis, "list its node in keep_nodes, or fix the weight")
    # Without zero points, a node outside of fused graphs removes the device (DP615).
    zeros = ir.Tensor(np.zeros(whole.count, np.int8))
    numbers, scales = SlicePart(whole, "numbers"), SlicePart(whole, "scales")
    return (edit.initializer(numbers, "numbers"), edit.initializer(scales, "scales"), edit.initializer(zeros, "zeros"))


def _write(conv: _Convolution, parts: tuple[ir.Value, ...], edit: Edit) -> None:
    shape = ir.Shape(conv.tensor.shape.numpy())
    wide = edit.new_value("weight", ir.TensorType(conv.tensor.dtype), shape)
    node = edit.new_node("DequantizeLinear", [*parts], [wide], "dequantize", {"axis": conv.axis})
    node.domain = DOMAIN
    edit.graph.insert_before(conv.node, node)
    edit.set_input(1, wide)


def write_rows(model: ir.Model, choice: Choice, done: Done, budget: Budget) -> None:
    """Rewrite each Gather of rows of a large constant table in place, with a table of 8 bits; report in ``done``."""
    writing = Writing(model, done, budget)
    for graph in main_graphs(model):
        for node in list(graph):
            table = node.inputs[0] if node.op_type == "Gather" and not node.domain else None
            tensor = constant_of(table, model.ir_version)
            if table is None or tensor is None or tensor.dtype not in FLOATS or len(tensor.shape) != 2:
                continue
            narrow = int(tensor.shape.numpy()[1]) < _NARROWEST
            if node.attributes.get_int("axis", 0) not in (0, -2) or int(tensor.size) < choice.least or narrow:
                continue
            if why := choice.keep.get(id(node), ""):
                done.unchanged[label(node)] = why
                continue
            numbers, scales = writing.parts(id(tensor), node, table, tensor, partial(_row_parts, tensor))
            _write_row(node, tensor.dtype, numbers, scales, writing.at(node))
            done.rows.append(label(node))
    writing.finish()


def _row_parts(tensor: ir.TensorProtocol, edit: Edit) -> tuple[ir.Value, ...]:
    whole = Slices(tensor, 0, "list its node in keep_nodes, or fix the table")
    numbers, scales = SlicePart(whole, "numbers"), SlicePart(whole, "scales", (whole.count, 1))
    return edit.initializer(numbers, "numbers"), edit.initializer(scales, "scales")


def _write_row(node: ir.Node, kind: ir.DataType, numbers: ir.Value, scales: ir.Value, edit: Edit) -> None:
    indices, old = node.inputs[1], node.outputs[0]
    shape = list(old.shape.dims) if old.shape is not None else None
    sizes = None if shape is None else [d if isinstance(d, int) else d.value for d in shape]
    row = edit.before("Gather", [numbers, indices], dtype=ir.DataType.INT8, shape=sizes)
    scale = edit.before("Gather", [scales, indices], dtype=kind, shape=None if sizes is None else [*sizes[:-1], 1])
    wide = edit.before("Cast", [row], {"to": int(kind)}, dtype=kind, shape=sizes)
    edit.become(edit.before("Mul", [wide, scale], dtype=kind, shape=sizes))
