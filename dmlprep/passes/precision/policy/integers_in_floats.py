"""FP16 rule for whole numbers in floats that become integers, comparison results or sizes again."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.passes.precision.policy.stretches import COMPARES, from_integers, upstream
from dmlprep.passes.precision.view import NodeReasons, View


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """Find arithmetic on whole numbers in floats whose result is then cast to integers, compared, or used as a size."""
    inside = from_integers(view)
    ends: list[ir.Value] = []
    last: list[ir.Node] = []
    for node in view.order:
        if node.op_type == "Cast" and not any(view.wide(v) for v in node.outputs):
            kind = view.types.get(node.outputs[0])
            if isinstance(kind, ir.TensorType) and kind.dtype.is_integer():
                ends += [v for _, v, _ in view.wide_inputs(node)]
        elif node.op_type in COMPARES:
            mine = [v for _, v, _ in view.wide_inputs(node) if v in inside]
            if mine:
                ends += mine
                last.append(node)
        else:
            ends += [v for _, v, port in view.wide_inputs(node) if port is not None and not port.variable]
    for node in (*upstream(ends, inside), *last):
        if node.op_type != "Cast" or any(view.wide(v) for v in node.inputs):
            yield node, "it computes on sizes, positions or indices: FP16 has no odd integers above 2048"
        else:
            yield node, "its numbers become integers again: FP16 has no odd integers above 2048"
