"""A matrix product with an inner size of 0: the first operand has no columns."""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk


def _matches(node: NodeFacts) -> str:
    a, out = node.input(0), node.output()
    return f"{a.name} has no columns" if a is not None and out is not None and a.size == 0 and out.size != 0 else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write zeros in place of the product."""
    out = facts.output()
    if out is None or not out.type or not out.static:
        return "the sizes of its output are not known"
    if facts.op == "Gemm" and facts.input(2) is not None:
        return "it adds C"
    edit.room(out.sizes, out.numpy_type.itemsize, "the zeros that it computes")
    return edit.become(edit.constant(np.zeros(out.sizes, out.numpy_type), "zeros"))


QUIRK = Quirk(
    id="empty-product",
    code="DP625",
    title="matrix product with an inner size of 0",
    ops=("MatMul", "Gemm"),
    outcome="wrong numbers",
    sources=(MEASURED,),
    matches=_matches,
    rewrite=_rewrite,
)
