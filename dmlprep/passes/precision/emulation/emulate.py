"""The FP16 emulation: the results of FP16 hardware, from an FP32 model that any machine runs.

ONNX Runtime's CPU provider computes FP16 graphs in FP32 and removes the casts between nodes, so it shows no FP16
overflow. Here every FP16 value of a converted model becomes an FP32 value that is rounded to FP16 right after it is
computed. The emulation runs at FP32 speed.

There are two ways to accumulate. ``storage``: products are summed in FP32 and results stored in FP16, as in DirectML's
shaders. ``everywhere``: partial sums are rounded, too, in blocks, as in hardware with FP16 accumulators.

In both, normalisations have their variance in FP16, as on DirectML. Measured: LayerNormalization is right up to a
standard deviation of 200, and wrong from 400.
"""

from __future__ import annotations

from typing import Literal

import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.analysis.operators import MOVES
from dmlprep.graph.model import Model
from dmlprep.graph.model.texts import cast_target
from dmlprep.graph.model.walk import graphs
from dmlprep.graph.rewriting.builder import insert_behind, move_readers
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.precision.emulation import composites
from dmlprep.passes.precision.emulation.rounding import Builder, Constants, Rounding
from dmlprep.passes.precision.lift import lift
from dmlprep.passes.precision.signature import operators
from dmlprep.passes.precision.types import Types, solve_types

__all__ = ["EXACT", "Accumulation", "Rounding", "emulate", "forget_symbolic_shapes"]

Accumulation = Literal["storage", "everywhere"]

_HALF, _SINGLE = ir.DataType.FLOAT16, ir.DataType.FLOAT
EXACT = MOVES | operators(
    "Abs Neg Relu Max Min Where Sign MaxPool GlobalMaxPool ReduceMax ReduceMin TopK Pad ScatterND "
    "ScatterElements Constant ConstantOfShape EyeLike Clip Hardmax Floor Ceil Round ArgMax If Loop Scan "
    "MaxUnpool"
)
"""Operators whose result is an FP16 value if their operands are: a second rounding would change nothing."""


def emulate(model: Model, mode: Accumulation = "storage", rounding: Rounding = "nearest") -> Model:
    """Return the FP16 emulation of a converted model; ``model`` is unchanged.

    Inputs and outputs keep their names; FP16 ones become FP32 (inputs are rounded inside). FP16 values keep their names
    too, so that any of them can be read.

    Raises:
        ModelRefused: the model has functions, which the converter inlines.
    """
    if model.ir.functions:
        raise ModelRefused("the FP16 emulation needs a model without functions", code="DP403", fix="convert it first")
    shadow = model.copy()
    types = solve_types(shadow.ir)
    half = {v for v, kind in types.items() if isinstance(kind, ir.TensorType) and kind.dtype == _HALF}
    names = Names(shadow.ir)
    constants = Constants(shadow.ir, names)
    opset = shadow.opset
    order = [(graph, list(graph)) for _, graph in graphs(shadow.ir) if isinstance(graph, ir.Graph)]
    lift(shadow)
    for graph, inside in order:
        for node in inside:
            _node(node, half, types, Builder(graph, names, opset, rounding, constants), mode)
        if graph is shadow.ir.graph:
            _round_inputs(graph, half, Builder(graph, names, opset, rounding, constants))
    # The former outputs are inner values now.
    forget_symbolic_shapes(shadow)
    return shadow


def _round_inputs(graph: ir.Graph, half: set[ir.Value], builder: Builder) -> None:
    for value in list(graph.inputs):
        if value in half and not value.is_initializer():
            move_readers(value, builder.round(value), but=set(builder.new_nodes))
    if builder.new_nodes:
        insert_behind(graph.inputs[0], builder.new_nodes)


def _node(node: ir.Node, half: set[ir.Value], types: Types, builder: Builder, mode: Accumulation) -> None:
    outputs = [v for v in node.outputs if v in half and v.name]  # an omitted output has no name
    exact = not outputs or (node.op_type in EXACT and not node.domain)
    if node.op_type == "Cast" and (not exact or node.inputs[0] in half):
        _same_type(node, types)
    if exact or composites.decompose(node, builder, everywhere=mode == "everywhere"):
        return
    for value in outputs:
        builder.replace(value, builder.round(value), "unrounded")


def _same_type(node: ir.Node, types: Types) -> None:
    """Turn a cast between two values that are now both FP32 into an Identity."""
    source = node.inputs[0]
    kind = types.get(source) if source is not None else None
    if isinstance(kind, ir.TensorType) and kind.dtype in (_HALF, _SINGLE) and cast_target(node) == _SINGLE:
        node.op_type = "Identity"
        node.attributes.clear()


def forget_symbolic_shapes(model: Model) -> None:
    """Remove the shapes of inner values that have dimension names.

    ONNX Runtime lets values of the same named size share memory. Exporters give an output's height the input's name,
    though it is twice as large. For an output that does no harm; for an inner value the run fails.
    """
    for _, graph in graphs(model.ir):
        ends = {id(v) for v in (*graph.inputs, *graph.outputs)} if isinstance(graph, ir.Graph) else set()
        for node in graph:
            for value in node.outputs:
                shape = value.shape
                if shape is not None and id(value) not in ends and not all(isinstance(d, int) for d in shape):
                    value.shape = None
