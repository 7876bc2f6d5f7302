"""The FP16 emulation: an FP32 model that any machine runs, and that computes what FP16 hardware would compute.

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
"""Operators whose result is exact in FP16 if their operands are, so that the emulation need not round it."""


def emulate(model: Model, mode: Accumulation = "storage", rounding: Rounding = "nearest") -> Model:
    """Return the FP16 emulation of a model that was converted to FP16, as a new model; ``model`` is unchanged.

    FP16 inputs and outputs become FP32; the graph rounds such inputs to FP16 first. All inputs, outputs and FP16 values
    keep their names.

    Args:
        mode: ``storage`` or ``everywhere``: where sums are rounded (see the module).
        rounding: how numbers are rounded to FP16.

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
    """Turn a Cast to FP32 into an Identity, in place, if its input was FP16 (and is FP32 in the emulation) or FP32."""
    source = node.inputs[0]
    kind = types.get(source) if source is not None else None
    if isinstance(kind, ir.TensorType) and kind.dtype in (_HALF, _SINGLE) and cast_target(node) == _SINGLE:
        node.op_type = "Identity"
        node.attributes.clear()


def forget_symbolic_shapes(model: Model) -> None:
    """Remove, in place, shapes with dimension names from all values but the inputs and outputs of graphs.

    ONNX Runtime lets values of the same named size share memory. Some exporters give a dimension of an output the name
    of an input's dimension of another size. If the output becomes an inner value, the run fails.
    """
    for _, graph in graphs(model.ir):
        ends = {id(v) for v in (*graph.inputs, *graph.outputs)} if isinstance(graph, ir.Graph) else set()
        for node in graph:
            for value in node.outputs:
                shape = value.shape
                if shape is not None and id(value) not in ends and not all(isinstance(d, int) for d in shape):
                    value.shape = None
