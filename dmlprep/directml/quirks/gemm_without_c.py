"""Gemm without C whose result an activation reads: the fused operator needs C."""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.patterns import GRAPH_TRANSFORMER, fused_activation
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    if node.input(2) is not None:
        return ""
    activation = fused_activation(node)
    return f"no C, and {activation.op} follows" if activation is not None else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Add a C of zeros, which is broadcast."""
    a = facts.input(0)
    dtype = a.dtype if a is not None else None
    if dtype is None:
        return "the type of its first input is not known"
    edit.set_input(2, edit.constant(np.zeros((1,), dtype.numpy()), "zero"))
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
