"""FP32 that the model itself casts up to."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.model.walk import attribute_graphs
from dmlprep.precision.view import Found, View

__all__ = ["find"]


def find(view: View) -> Found:
    """Nodes that compute in FP32 on values that the model casts up from FP16 itself."""
    inside: set[ir.Value] = set()
    found: dict[ir.Node, None] = {}
    size = -1
    while len(inside) > size:  # again where a body hands such a value to the node that holds it
        size = len(inside)
        for node in view.order:
            wide = [v for v in node.outputs if view.wide(v)]
            if node.op_type == "Cast":
                kind = view.types.get(node.inputs[0]) if node.inputs[0] is not None else None
                half = isinstance(kind, ir.TensorType) and kind.dtype == ir.DataType.FLOAT16
                stored = view.constant(node.inputs[0]) is not None  # a weight kept in FP16 to save room
                if (half and not stored) or node.inputs[0] in inside:
                    inside.update(wide)
                continue
            handed = any(v in inside for _, graph in attribute_graphs(node) for v in graph.outputs)
            if handed or any(v in inside for v in node.inputs):
                inside.update(wide)
                found.setdefault(node)
    for node in found:
        yield node, "reads a value that the model casts from FP16 to FP32"
