"""MultiHeadAttention or Attention whose attention bias is broadcast: DirectML makes no session of it."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk

_BIAS = 5


def _wanted(node: NodeFacts) -> list[int] | None:
    """[batch, heads, queries, keys]; ``None`` where they are not known, or a cache makes the keys more."""
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
    return f"its bias is {bias.sizes}, and not {wanted}"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Spread the bias out before the node."""
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
