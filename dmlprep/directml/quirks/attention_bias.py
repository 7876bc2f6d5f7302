"""Attention with a bias that is broadcast, or with a bias and a mask; the rewrite adds the mask to the bias."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk

_MASK, _BIAS = 3, 5


def _wanted(node: NodeFacts) -> list[int] | None:
    """The shape that the bias needs: [batch, heads, queries, keys]; ``None`` if unknown, or if a cache adds keys."""
    query, heads = node.input(0), node.attribute("num_heads", 0)
    if node.op == "Attention":
        known = query is not None and query.static and query.rank == 3 and node.input(4) is None
        return [query.sizes[0], int(heads), query.sizes[1], query.sizes[1]] if known and query is not None else None
    key = node.input(1)
    if query is None or key is None or not (query.static and key.static) or len(query.sizes) != 3:
        return None
    if len(key.sizes) not in (3, 4) or any(node.input(index) is not None for index in (6, 7)):
        return None
    return [query.sizes[0], int(heads), query.sizes[1], key.sizes[-2]]


def _matches(node: NodeFacts) -> str:
    bias, wanted = node.input(_BIAS), _wanted(node)
    if bias is None or wanted is None or not bias.static or bias.sizes == wanted:
        return ""
    return f"its bias has the shape {bias.sizes}, not {wanted}"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Broadcast the bias to its full shape before the node."""
    bias, wanted = edit.input(_BIAS), _wanted(facts) or []
    edit.set_input(_BIAS, edit.before("Expand", [bias, edit.integers(wanted, "shape")], like=bias, shape=wanted))
    return ""


QUIRK = Quirk(
    id="attention-spread-bias",
    code="DP647",
    title="Attention or MultiHeadAttention with a bias that is broadcast",
    ops=("com.microsoft::MultiHeadAttention", "com.microsoft::Attention"),
    outcome="create fails",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/fused_kernels.py and contrib_forms.py: 80070057 with a bias "
        "of one batch or one head",
        "https://github.com/microsoft/onnxruntime/pull/21710",
    ),
    matches=_matches,
    rewrite=_rewrite,
)


def _matches_masked(node: NodeFacts) -> str:
    both = node.input(_MASK) is not None and node.input(_BIAS) is not None
    return "it has a mask and a bias" if both else ""


def _rewrite_masked(facts: NodeFacts, edit: Edit) -> str:
    """Add ``mask_filter_value`` to the bias where the mask is 0, and remove the mask."""
    mask, bias = facts.required(_MASK), facts.required(_BIAS)
    if not mask.static or mask.rank not in (2, 3) or bias.dtype is None:
        return "its mask might not have one number for each key"
    batch, *rows = mask.sizes
    shape = [batch, 1, *([1] if mask.rank == 2 else []), *rows]
    kind, whole = bias.dtype, ir.DataType.INT32
    laid = edit.before("Reshape", [edit.input(_MASK), edit.integers(shape, "mask_shape")], dtype=whole, shape=shape)
    visible = edit.before(
        "Greater", [laid, edit.constant(np.array(0, np.int32), "none")], dtype=ir.DataType.BOOL, shape=shape
    )
    lowest = float(facts.attribute("mask_filter_value", -10000.0))
    values = [edit.constant(np.array(number, kind.numpy()), name) for number, name in ((0, "zero"), (lowest, "value"))]
    hidden = edit.before("Where", [visible, *values], dtype=kind, shape=shape)
    edit.set_input(_BIAS, edit.before("Add", [edit.input(_BIAS), hidden], dtype=kind))
    edit.set_input(_MASK, None)
    return ""


QUIRK_MASKED = Quirk(
    id="attention-masked-bias",
    code="DP678",
    title="Attention with a mask and an attention bias",
    ops=("com.microsoft::Attention",),
    outcome="wrong numbers",
    sources=("measured on 1.24.4 and 1.30.0 by tests/benchmarks/contrib_forms.py: .4 of the largest value off",),
    matches=_matches_masked,
    rewrite=_rewrite_masked,
)
