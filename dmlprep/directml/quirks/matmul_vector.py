"""MatMul whose second operand is a vector."""

from __future__ import annotations

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    second = node.input(1)
    return "the second operand has one dimension" if second is not None and second.rank == 1 else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Multiply by the vector as a matrix of one column, and remove that dimension from the product."""
    a, b = edit.node.inputs
    first = facts.input(0)
    if a is None or b is None or first is None:
        return "an operand is missing"
    axis = -1 if first.rank is None else first.rank - 1
    if axis < 0 and facts.opset < 11:
        return "the rank of its first operand is not known"
    column = edit.unsqueeze(b, 1, facts.opset)
    product = edit.before("MatMul", [a, column], like=edit.node.outputs[0])
    return edit.become(edit.squeeze(product, axis, facts.opset))


QUIRK = Quirk(
    id="matmul-vector",
    code="DP622",
    title="MatMul with a vector as second operand",
    ops=("MatMul",),
    outcome="wrong numbers",
    sources=(
        MEASURED,
        "onnxruntime/test/testdata/onnx_backend_test_series_filters.jsonc (matmul_1d_1d, matmul_4d_1d)",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
