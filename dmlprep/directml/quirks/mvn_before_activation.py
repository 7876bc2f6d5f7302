"""MeanVarianceNormalization whose result an activation reads: DirectML refuses the fused operator."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk
from dmlprep.directml.quirks.patterns import GRAPH_TRANSFORMER, fused_activation


def _matches(node: NodeFacts) -> str:
    activation = fused_activation(node)
    return f"{activation.op} follows it" if activation is not None else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Put the activation between Unsqueeze and Squeeze, which stop the fusion."""
    uses = list(edit.output.uses())
    if fused_activation(facts) is None or len(uses) != 1:
        return "the activation after it has gone, so nothing is left to rewrite"
    if not facts.has("axes"):
        edit.set("axes", [0, 2, 3])  # the default; onnx's checker does not infer the form without it
    reader, _ = uses[0]
    after = edit.at(reader)
    lifted = after.unsqueeze(edit.output, 0, facts.opset)
    twin = after.before(reader.op_type, [lifted], reader.attributes, like=reader.outputs[0])
    return after.become(after.squeeze(twin, 0, facts.opset))


QUIRK = Quirk(
    id="mvn-before-activation",
    code="DP603",
    title="MeanVarianceNormalization before an activation",
    ops=("MeanVarianceNormalization",),
    outcome="create fails",
    sources=(MEASURED, GRAPH_TRANSFORMER),
    matches=_matches,
    rewrite=_rewrite,
)
