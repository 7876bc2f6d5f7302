"""An empty graph output among others: the provider stops copying outputs to the CPU at it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, ORT_SOURCE, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    """The model has an empty output; the provider stops copying outputs to the CPU at it."""
    empty = [v.name for v in node.outputs if v is not None and v.graph_output and v.size == 0]
    return f"the output {empty[0]} is empty" if empty and not node.graph else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Make the empty output a constant, which lies on the CPU and is not copied."""
    if facts.subgraphs:
        return "it has a subgraph"
    for index, value in enumerate(facts.outputs):
        if value is None or not value.graph_output or value.size != 0:
            continue
        dims = value.sizes
        empty = np.zeros(dims, ir.DataType[value.type.upper()].numpy())
        edit.replace_output(edit.constant(empty, "empty"), index)
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
    sources=(
        MEASURED,
        ORT_SOURCE + "onnxruntime/core/providers/dml/DmlExecutionProvider/src/ExecutionProvider.cpp",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
