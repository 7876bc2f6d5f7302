"""A graph output that also feeds an activation: the provider fuses both nodes, and the output comes back empty.

The Python package of ONNX Runtime 1.24.4 refuses such a model on Windows: "Failed to find node output or a constant
initializer producing output".
"""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.patterns import GRAPH_TRANSFORMER, fused_activation
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts
from dmlprep.graph.rewriting.builder import move_readers


def _matches(node: NodeFacts) -> str:
    out = node.output()
    if out is None or not out.graph_output:
        return ""
    activation = fused_activation(node)
    return f"{out.name} is an output and feeds {activation.op}" if activation is not None else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Make the output a copy (Identity): the value then has two readers, and the provider does not fuse it away."""
    old = edit.node.outputs[0]
    if any(v.uses() or v.is_graph_output() for v in edit.node.outputs[1:]):
        return "another of its outputs is read"
    inner = edit.new_value("inner", old.type, old.shape)
    new = ir.Node(
        edit.node.domain,
        edit.node.op_type,
        edit.node.inputs,
        list(edit.node.attributes.values()),
        outputs=[inner, *(edit.new_value("unused") for _ in edit.node.outputs[1:])],
        name=edit.node.name,
    )
    edit.graph.insert_before(edit.node, new)
    move_readers(old, inner)
    return edit.become(edit.before("Identity", [inner], like=old))


QUIRK = Quirk(
    id="output-before-activation",
    code="DP620",
    title="an output that also feeds an activation",
    ops=(
        "Conv",
        "ConvTranspose",
        "BatchNormalization",
        "InstanceNormalization",
        "MeanVarianceNormalization",
        "Gemm",
        "MatMul",
        "Add",
        "Sum",
    ),
    outcome="empty output",
    sources=(MEASURED, GRAPH_TRANSFORMER),
    matches=_matches,
    rewrite=_rewrite,
)
