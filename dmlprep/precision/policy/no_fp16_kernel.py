"""The target's kernel table has no FP16 for it, or DirectML has no kernel at all."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.model.texts import text_of
from dmlprep.precision.view import Found, View

__all__ = ["find"]

_TYPELESS = frozenset({"Constant", "If", "Loop", "Scan", "Cast", "CastLike"})


def find(view: View) -> Found:
    """Nodes that DirectML does not compute in FP16."""
    for node in view.order:
        if node.op_type in _TYPELESS or not view.is_float(node):
            continue
        if not view.on_directml(node):
            yield node, "DirectML has no kernel for it; it runs on the CPU, in FP32"
            continue
        known = view.signature(node)
        if known is None:
            continue
        if not any(True for _ in view.wide_inputs(node)) and not view.exact_kernel(node):
            # ONNX Runtime puts casts around what it gives the CPU, but only behind FP16 operands
            yield node, "DirectML's kernel is of another version, and the CPU's makes no FP16"
            continue
        if node.op_type in ("ScatterElements", "ScatterND") and _reduces(node):
            yield node, "DirectML has no kernel for its reduction, and the CPU's takes no FP16"
            continue
        ports = [p for _, _, p in (*view.wide_inputs(node), *view.wide_outputs(node)) if p and p.variable]
        halves = [p for p in ports if ir.DataType.FLOAT16 in p.floats]
        if halves and not any(view.half_kernel(node, p.label) for p in halves):
            yield node, "DirectML's kernel has no FP16"


def _reduces(node: ir.Node) -> bool:
    return text_of(node, "reduction", "none") != "none"
