"""A graph output that also feeds an activation: the provider fuses both nodes, and the returned output is empty.

The Python package of ONNX Runtime 1.24.4 refuses such a model on Windows: "Failed to find node output or a constant
initializer producing output".
"""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk
from dmlprep.directml.quirks.patterns import GRAPH_TRANSFORMER, fused_activation
from dmlprep.graph.rewriting.builder import move_readers


def _matches(node: NodeFacts) -> str:
    out, activation = node.output(), fused_activation(node)
    if out is None or not out.graph_output or activation is None:
        return ""
    return f"{out.name} is an output and feeds {activation.op}"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Make the output a copy (Identity): the value then has two readers, and the provider does not fuse it away."""
    node, old = edit.node, edit.output
    if any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
        return "another of its outputs is used"
    inner = edit.new_value("inner", old.type, old.shape)
    outputs, attributes = [inner, *(edit.new_value("unused") for _ in node.outputs[1:])], list(node.attributes.values())
    new = ir.Node(node.domain, node.op_type, node.inputs, attributes, outputs=outputs, name=node.name)
    edit.graph.insert_before(node, new)
    move_readers(old, inner)
    return edit.become(edit.before("Identity", [inner], like=old))


QUIRK = Quirk(
    id="output-before-activation",
    code="DP620",
    title="an output that also feeds an activation",
    ops=(
        *("Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization", "MeanVarianceNormalization", "Gemm"),
        *("MatMul", "Add", "Sum"),
    ),
    outcome="empty output",
    sources=(MEASURED, GRAPH_TRANSFORMER),
    matches=_matches,
    rewrite=_rewrite,
)
