"""Sequences and optionals cannot be cast where they cross."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.precision.view import Found, View

__all__ = ["find"]

_SEQUENCE_MAKERS = frozenset({"SequenceMap", "SequenceConstruct", "SplitToSequence", "SequenceInsert", "Optional"})


def find(view: View) -> Found:
    """Nodes that handle sequences, optionals, or values of unknown type."""
    for node in view.order:
        values = [v for v in (*node.inputs, *node.outputs) if v is not None]
        kinds = [view.types.get(v) for v in values]
        odd = any(k is not None and not isinstance(k, ir.TensorType) for k in kinds)
        if odd or node.op_type in _SEQUENCE_MAKERS:
            yield node, "it handles a sequence or an optional"
        elif any(v is not None and view.types.get(v) is None for v in node.inputs) and view.is_float(node):
            yield node, "the type of an operand is not known"
