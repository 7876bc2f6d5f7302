"""Products of uint8 data and int8 weights: a CPU without VNNI adds pairs of them in 16 bits, which overflow.

Measured on ONNX Runtime 1.32: 64 x 255 x 127 gives 1,048,544 instead of 2,072,640. Its kernel for uint8 weights is
exact on every processor, as DirectML is.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.targets.facts import NodeFacts

OPERATORS = {
    "DynamicQuantizeMatMul": (1, 3),
    "MatMulInteger": (1, 3),
    "MatMulIntegerToFloat": (1, 5),
    "QAttention": (1, 7),
    "QGemm": (3, 5),
    "QLinearConv": (3, 5),
    "QLinearMatMul": (3, 5),
}
"""Operators that overflow -> positions of their weights and of the zero points of these. ConvInteger is exact."""

_LARGEST = 64
"""Largest weight that cannot overflow: two products with 255 are at most 32,640."""

_SIGN = np.uint8(128)
"""The bit that differs between an int8 number and the same number plus 128 as uint8."""


def _stored(node: ir.Node, index: int) -> ir.TensorProtocol | None:
    """The tensor of an input that is an initializer or the output of Constant; ``None`` for others."""
    value = node.inputs[index] if index < len(node.inputs) else None
    return None if value is None or value.is_graph_input() else ir.convenience.get_const_tensor(value)


def overflows(node: ir.Node) -> bool:
    """Return whether a node has constant int8 weights whose products with uint8 data can overflow 16 bits."""
    if node.op_type not in OPERATORS or node.domain not in ("", "com.microsoft"):
        return False
    weights = _stored(node, OPERATORS[node.op_type][0])
    if weights is None or weights.dtype != ir.DataType.INT8 or not weights.size:
        return False
    array = weights.numpy()
    return bool(array.max() > _LARGEST or array.min() < -_LARGEST)


def unsigned(facts: NodeFacts, edit: Edit) -> str:
    """Replace int8 weights and their zero points by equal uint8 ones; return ``""`` or why not."""
    where, points = OPERATORS[facts.op]
    data, weights, point = facts.required(0), _stored(edit.node, where), _stored(edit.node, points)
    if data.type != ("float" if facts.op == "DynamicQuantizeMatMul" else "uint8"):
        return "its data are not uint8"
    if weights is None or (point is None and edit.optional(points) is not None):
        return "its weights or their zero points are not constant"
    old = edit.input(where), edit.optional(points)
    origin = np.zeros((), np.int8) if point is None else point.numpy()
    for index, array in ((where, weights.numpy()), (points, origin)):
        edit.set_input(index, edit.constant(array.view(np.uint8) ^ _SIGN, "unsigned"))
    edit.forget(old)
    return ""
