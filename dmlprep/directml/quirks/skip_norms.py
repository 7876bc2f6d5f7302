"""SkipSimplifiedLayerNormalization with a bias, and skip normalizations whose skip is broadcast."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import Edit, Match, NodeFacts, Quirk

_BIAS = 3


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Add the bias to the skip before the node."""
    edit.set_input(1, edit.before("Add", [edit.input(1), edit.input(_BIAS)], like=edit.input(1)))
    edit.node.resize_inputs(_BIAS)
    return ""


QUIRK = Quirk(
    id="skip-simplified-bias",
    code="DP646",
    title="SkipSimplifiedLayerNormalization with a bias",
    ops=("com.microsoft::SkipSimplifiedLayerNormalization",),
    outcome="wrong numbers",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/fused_kernels.py: 0.4 of the largest value off with a bias, "
        "right without one",
    ),
    matches=lambda node: "it has a bias" if node.input(_BIAS) is not None else "",
    rewrite=_rewrite,
)


def _matches(node: NodeFacts) -> str | Match:
    data, skip = node.input(0), node.input(1)
    if data is None or skip is None or data.shape is None or skip.shape is None or data.shape == skip.shape:
        return ""
    pairs = [(a, b) for a, b in zip(data.shape[::-1], skip.shape[::-1], strict=False) if a != b]
    text = f"its skip {skip.name} is broadcast to the data"
    if data.rank != skip.rank or any(b == 1 and isinstance(a, int) for a, b in pairs):
        return text
    return Match(text, sure=False) if any(b == 1 for _, b in pairs) else ""


def _rewrite_spread(facts: NodeFacts, edit: Edit) -> str:
    """Broadcast the skip to the shape of the data before the node."""
    data = facts.required()
    size = edit.integers(data.sizes, "shape") if data.static else edit.before("Shape", [edit.input()])
    edit.set_input(1, edit.before("Expand", [edit.input(1), size], like=edit.input(), shape=data.dims))
    return ""


QUIRK_SPREAD = Quirk(
    id="skip-spread",
    code="DP677",
    title="SkipLayerNormalization with a skip that is broadcast",
    ops=("com.microsoft::SkipLayerNormalization", "com.microsoft::SkipSimplifiedLayerNormalization"),
    outcome="wrong numbers",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/contrib_forms.py: .8 of the largest value off with a skip "
        "of one batch or of two dimensions",
    ),
    matches=_matches,
    rewrite=_rewrite_spread,
)
