"""Gemm without C whose result an activation reads: the fused operator needs C."""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk
from dmlprep.directml.quirks.patterns import GRAPH_TRANSFORMER, fused_activation


def _matches(node: NodeFacts) -> str:
    activation = fused_activation(node) if node.input(2) is None else None
    return f"it has no C, and {activation.op} follows" if activation is not None else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Add a C of zeros, which Gemm broadcasts."""
    a = facts.required()
    if not a.type:
        return "the type of its first input is unknown"
    edit.set_input(2, edit.constant(np.zeros((1,), a.numpy_type), "zero"))
    return ""


QUIRK = Quirk(
    id="gemm-without-c",
    code="DP602",
    title="Gemm without C before an activation",
    ops=("Gemm",),
    outcome="create fails",
    sources=(MEASURED, GRAPH_TRANSFORMER),
    matches=_matches,
    rewrite=_rewrite,
)
