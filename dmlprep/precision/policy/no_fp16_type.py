"""Operators whose schema takes no FP16, or whose body in ONNX holds FP32 constants."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.precision.view import Found, View

__all__ = ["find"]

_FP32_BODIES = frozenset({"MeanVarianceNormalization"})
"""Measured with onnx 1.23.2 over every operator with a body: versions 9 and 13."""


def find(view: View) -> Found:
    """Nodes without an FP16 form in their schema."""
    for node in view.order:
        known = view.signature(node)
        if known is None:
            if view.is_float(node):
                yield node, f"operator {node.domain}::{node.op_type} is not known"
            continue
        ports = [p for _, _, p in (*view.wide_inputs(node), *view.wide_outputs(node))]
        if ports and not any(p and p.variable and ir.DataType.FLOAT16 in p.floats for p in ports):
            yield node, "its schema has no FP16"
        elif ports and node.op_type in _FP32_BODIES:
            yield node, "its function body in ONNX holds FP32 constants, so that the checker refuses it in FP16"
