"""MatMul whose second operand is a vector."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Multiply by the vector as a matrix of one column, and remove that dimension from the product."""
    axis = (facts.rank(0) or 0) - 1
    if axis < 0 and facts.opset < 11:
        return "the rank of its first operand is not known"
    product = edit.before("MatMul", [edit.input(), edit.unsqueeze(edit.input(1), 1, facts.opset)], like=edit.output)
    return edit.become(edit.squeeze(product, axis, facts.opset))


QUIRK = Quirk(
    id="matmul-vector",
    code="DP622",
    title="MatMul with a vector as second operand",
    ops=("MatMul",),
    outcome="wrong numbers",
    sources=(MEASURED, "onnxruntime/test/testdata/onnx_backend_test_series_filters.jsonc (matmul_1d_1d, matmul_4d_1d)"),
    matches=lambda node: "the second operand has one dimension" if node.rank(1) == 1 else "",
    rewrite=_rewrite,
)
