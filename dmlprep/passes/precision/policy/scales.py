"""Estimate where values are out of FP16's range, and where they return into it.

These functions run no model. They assume that values are about 1, and that a factor of 1e5 makes values of about 1e5.
Nodes that move, add or scale such values stay in FP32. The FP32 part ends at a factor that brings the values back, or
at an operator whose results do not depend on the magnitude of its operands.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from dmlprep.graph.analysis.operators import MOVES
from dmlprep.passes.precision.signature import operators
from dmlprep.passes.precision.view import UNTYPED, View

_LOW, _HIGH = 2.0**-14, 4096.0
"""Bounds of the magnitude of values in range: they are normal in FP16, and still finite at sixteen times their size."""
_FARTHEST = 64  # nodes: the FP16 emulation finds longer ones
_SMALL = 4096  # elements: larger constants are weights, and are not examined

_KEEPS_SCALE = MOVES | operators(
    "Abs AveragePool Conv ConvTranspose Gemm GlobalAveragePool GlobalMaxPool LeakyRelu MatMul Max MaxPool Min Neg "
    "PRelu Pad ReduceMax ReduceMean ReduceMin Relu Resize Upsample"
)
_NORMALISES = operators(
    "BatchNormalization Clip Erf GroupNormalization InstanceNormalization LayerNormalization Log LogSoftmax "
    "RMSNormalization Sigmoid Softmax Sqrt Tanh"
)
_ADDS = frozenset({"Add", "Sub", "Sum", "Where", "Mean"})


def _peak(view: View, value: ir.Value | None) -> float | None:
    """Largest finite magnitude in a constant of at most 4096 elements; ``None`` for other values."""
    tensor = view.constant(value)
    if tensor is None or not 0 < tensor.size <= _SMALL:
        return None
    values = np.abs(np.asarray(tensor.numpy(), np.float64))
    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size else None


def result_scale(node: ir.Node, value: ir.Value, peak: float) -> float:
    """Estimate the magnitude of a node's result if ``value`` has the magnitude ``peak`` and other operands are about 1.

    A dividend is assumed to be as large as a large divisor. So are the values that a normalisation reads together with
    a large mean or variance.
    """
    if node.op_type == "Div" and len(node.inputs) > 1 and node.inputs[1] is value:
        return 1 / peak if 0 < peak < 1 else 1.0
    return 1.0 if node.op_type in _NORMALISES else peak


def _was_integer(view: View, value: ir.Value | None) -> bool:
    node = value.producer() if value is not None else None
    while node is not None and node.op_type in MOVES and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node is not None and node.op_type == "Cast" and not view.wide(node.inputs[0])


def _scaled(view: View, reader: ir.Node, value: ir.Value, scale: float) -> float | None:
    """Estimate the magnitude of a reader's result if its operand ``value`` has the magnitude ``scale``.

    ``None`` if the result's magnitude does not follow from that.
    """
    if reader.op_type in ("Mul", "Div"):
        divides = reader.op_type == "Div"
        if divides and reader.inputs[1] is value:
            return None
        factors = [_peak(view, v) for v in reader.inputs if v is not value]
        if factors == [None] and scale < _LOW:
            return None
        for factor in factors:
            if factor:
                scale = scale / factor if divides else scale * factor
        return scale
    return scale if reader.op_type in _KEEPS_SCALE or reader.op_type in _ADDS or reader.op_type == "If" else None


def _reads_too_little(view: View, reader: ir.Node, value: ir.Value, scale: float) -> bool:
    """Return whether the reader may compute in FP16 because its result hardly depends on ``value``, which is small.

    Examples: a sum with values that are not small, or a function that is almost constant near 0 (Exp).
    """
    if scale > _HIGH or reader.op_type in _KEEPS_SCALE | _NORMALISES | {"Mul", "Div", "If"}:
        return False
    if reader.op_type in _ADDS:
        peaks = [_peak(view, v) for v in reader.inputs if v is not None and v is not value and view.wide(v)]
        return any(p is None or p > 64 * scale for p in peaks)
    return True


def out_of_range(view: View, start: ir.Node, scale: float) -> Iterator[ir.Node]:
    """Yield the nodes that depend on the result of ``start``, until values are in FP16's range again.

    ``scale`` is the estimated magnitude of that result. Casts are not included. The search ends after about 64 nodes.
    """
    if start.op_type == "Mul" and scale < _LOW and any(_was_integer(view, v) for v in start.inputs):
        return  # integers are as large as the factor is small
    stack: list[tuple[ir.Value, float]] = [(v, scale) for v in start.outputs if view.wide(v)]
    visited = {start}
    while stack and len(visited) < _FARTHEST:
        value, scale = stack.pop()
        if _LOW <= scale <= _HIGH:
            continue
        for reader in (*value.consumers(), *_holders(view, value)):
            if reader in visited or (reader.op_type in UNTYPED and reader.op_type != "Cast"):
                continue
            visited.add(reader)
            if reader.op_type in ("Cast", "CastLike"):
                stack += [(v, scale) for v in reader.outputs if view.wide(v)]
                continue
            if _reads_too_little(view, reader, value, scale):
                continue
            yield reader
            after = _scaled(view, reader, value, scale)
            if after is not None:
                stack += [(v, after) for v in reader.outputs if view.wide(v)]


def _holders(view: View, value: ir.Value) -> Iterator[ir.Node]:
    """Yield the If, Loop or Scan for which the value is an output of a subgraph; nothing for other values."""
    graph = value.graph
    if graph is not None and value.is_graph_output() and id(graph) in view.owner:
        yield view.owner[id(graph)]
