"""An empty graph output among others: the provider stops copying outputs to the CPU at it."""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.declaring import DML_PROVIDER, MEASURED, Edit, NodeFacts, Quirk


def _matches(node: NodeFacts) -> str:
    """The model has an empty output; the provider stops copying outputs to the CPU at it."""
    empty = [v.name for v in node.outputs if v is not None and v.graph_output and v.size == 0]
    return f"the output {empty[0]} is empty" if empty and not node.graph else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Make the empty output a constant, which lies on the CPU and is not copied."""
    if facts.subgraphs:
        return "it has a subgraph"
    for index, value in enumerate(facts.outputs):
        if value is not None and value.graph_output and value.size == 0:
            edit.replace_output(edit.constant(np.zeros(value.sizes, value.numpy_type), "empty"), index)
    if not any(v.uses() or v.is_graph_output() for v in edit.node.outputs):
        edit.remove()
    return ""


QUIRK = Quirk(
    id="empty-output",
    code="DP634",
    title="an empty output among others",
    ops=(),
    outcome="empty output",
    last="1.27",
    sources=(MEASURED, DML_PROVIDER + "ExecutionProvider.cpp"),
    matches=_matches,
    rewrite=_rewrite,
)
