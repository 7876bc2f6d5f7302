"""Transposes in FP16 that crash ONNX Runtime's CPU provider while it loads the file."""

from __future__ import annotations

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.graph.analysis.operators import MOVES
from dmlprep.passes.precision.view import Found, View


def find(view: View, fault: PrecisionFault) -> Found:
    """A Transpose that moves the first axis and leaves the last (``[1, 0, 2]``), and leads into a MatMul."""
    for node in view.order:
        perm = node.attributes.get("perm")
        if node.op_type != "Transpose" or perm is None:
            continue
        order = list(perm.as_ints())
        if len(order) < 3 or order[0] == 0 or order[-1] != len(order) - 1:
            continue
        readers = [n for v in node.outputs for n in v.consumers()]
        readers += [m for n in readers if n.op_type in MOVES for v in n.outputs for m in v.consumers()]
        if any(n.op_type in ("MatMul", "Gemm") for n in readers) and view.wide(node.inputs[0]):
            yield node, "it moves the first axis before a MatMul"
