"""Matrix products and triangles of more than four dimensions, and products whose second operand is a vector."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import onnx_ir as ir

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk
from dmlprep.graph.model.dims import Dim

_PIN = "the sizes of its operands are unknown: pin the free dimensions of the model"


def _matches(node: NodeFacts) -> str:
    ranks = [v.rank for v in (node.input(0), node.input(3 if node.op == "QLinearMatMul" else 1)) if v is not None]
    return f"operands of rank {', '.join(map(str, ranks))}" if any((r or 0) > 4 for r in ranks) else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write Reshape, MatMul, Reshape: the leading dimensions are folded into one, and unfolded in the product.

    reshape([..., M, K] @ [..., K, N]) = [P, M, K] @ [P, K, N]; if the second operand is a matrix, all rows are one
    batch.
    """
    second = 3 if facts.op == "QLinearMatMul" else 1
    a, b = facts.required(0), facts.required(second)
    inputs = list(edit.node.inputs)
    a_value, b_value = edit.input(0), edit.input(second)
    if any(v is not None and v.size != 1 for i, v in enumerate(facts.inputs) if i not in (0, second)):
        return "it has a scale or zero point for each row or column"
    if a.shape is None or b.shape is None:
        return "the rank of an operand is unknown"
    if len(a.shape) < 2 or len(b.shape) < 2:
        return "an operand is a vector"
    shape = _product_shape(a.shape, b.shape)
    if shape is None or _unknown(shape) > 1:
        return _PIN
    rows: list[Dim] = [None if _unknown(a.shape[:-1]) else prod(a.sizes[: len(a.shape) - 1]), a.shape[-1]]
    lead = [d for d in shape[:-2] if isinstance(d, int)]
    if len(b.shape) == 2:
        if _unknown(rows) > 1:
            return _PIN
        inputs[0] = _fold(edit, a_value, rows)
    else:
        pairs = ((a_value, a.shape), (b_value, b.shape))
        if len(lead) != len(shape) - 2 or any(_unknown(d[-2:]) > (d[:-2] == (*lead,)) for _, d in pairs):
            return _PIN
        inputs[0], inputs[second] = (_fold(edit, _spread(edit, v, d, lead), [prod(lead), *d[-2:]]) for v, d in pairs)
    return edit.become(_fold(edit, edit.before(facts.op, inputs, like=edit.output), shape))


def _unknown(dims: Sequence[Dim]) -> int:
    return sum(not isinstance(d, int) for d in dims)


def _product_shape(a: Sequence[Dim], b: Sequence[Dim]) -> list[Dim] | None:
    """Shape of A @ B by numpy's rule, from the shapes of A and B; ``None`` if the leading sizes are ambiguous."""
    rank = max(len(a), len(b)) - 2
    lead: list[Dim] = []
    for x, y in zip([1] * (rank - len(a) + 2) + list(a[:-2]), [1] * (rank - len(b) + 2) + list(b[:-2]), strict=True):
        if y == 1:
            lead.append(x)
        elif x in (1, y):
            lead.append(y)
        else:
            return None
    return [*lead, a[-2], b[-1]]


def _fold(edit: Edit, value: ir.Value, dims: Sequence[Dim]) -> ir.Value:
    """Add a Reshape of ``value`` to ``dims``, of which at most one is unknown; return its output."""
    sizes = [d if isinstance(d, int) else -1 for d in dims]
    return edit.before("Reshape", [value, edit.integers(sizes, "shape")], like=value)


def _spread(edit: Edit, value: ir.Value, dims: Sequence[Dim], lead: list[int]) -> ir.Value:
    """Return ``value``, of shape ``dims``, with all dimensions but the last two broadcast to ``lead``."""
    if list(dims[:-2]) == lead:
        return value
    sizes = [*lead, *(d for d in dims[-2:] if isinstance(d, int))]
    return edit.before("Expand", [value, edit.integers(sizes, "lead")], like=value)


QUIRK = Quirk(
    id="matmul-rank",
    code="DP604",
    title="MatMul of rank 5 and more",
    ops=("MatMul", "MatMulInteger", "QLinearMatMul"),
    outcome="run fails",
    sources=(MEASURED, "https://github.com/microsoft/onnxruntime/issues/21583"),
    matches=_matches,
    rewrite=_rewrite,
)


def _rewrite_vector(facts: NodeFacts, edit: Edit) -> str:
    """Multiply by the vector as a matrix of one column, and remove that dimension from the product."""
    axis = (facts.rank(0) or 0) - 1
    if axis < 0 and facts.opset < 11:
        return "the rank of its first operand is unknown"
    product = edit.before("MatMul", [edit.input(), edit.unsqueeze(edit.input(1), 1, facts.opset)], like=edit.output)
    return edit.become(edit.squeeze(product, axis, facts.opset))


QUIRK_VECTOR = Quirk(
    id="matmul-vector",
    code="DP622",
    title="MatMul with a vector as second operand",
    ops=("MatMul",),
    outcome="wrong numbers",
    sources=(MEASURED, "onnxruntime/test/testdata/onnx_backend_test_series_filters.jsonc (matmul_1d_1d, matmul_4d_1d)"),
    matches=lambda node: "the second operand has one dimension" if node.rank(1) == 1 else "",
    rewrite=_rewrite_vector,
)


def _rewrite_triangle(facts: NodeFacts, edit: Edit) -> str:
    """Write Reshape, Trilu, Reshape: the leading dimensions are folded into one."""
    dims = facts.required().dims
    if _unknown(dims[-2:]) or _unknown(dims) > 1:
        return _PIN
    triangle = edit.before(
        facts.op,
        [_fold(edit, edit.input(), [None, *dims[-2:]]), *edit.node.inputs[1:]],
        edit.node.attributes,
        like=edit.output,
    )
    return edit.become(_fold(edit, triangle, dims))


QUIRK_TRIANGLE = Quirk(
    id="trilu-rank",
    code="DP693",
    title="Trilu of rank 5 and more",
    ops=("Trilu",),
    outcome="create fails",
    sources=(MEASURED, "https://github.com/microsoft/onnxruntime/issues/26529"),
    matches=lambda node: f"data of rank {node.rank(0)}" if (node.rank(0) or 0) > 4 else "",
    rewrite=_rewrite_triangle,
)
