"""GroupQueryAttention with a quantized cache, or without a causal mask: DirectML makes no session of it."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import NodeFacts, Quirk

_PAST, _CACHES, _QUERIES = (3, 4), (1, 2), 16


def _matches(node: NodeFacts) -> str:
    caches = [*map(node.input, _PAST), *map(node.output, _CACHES)]
    if any(value is not None and "int" in value.type for value in caches):
        return "its cache is quantized"
    if any(node.attribute(name, "NONE") != "NONE" for name in ("k_quant_type", "v_quant_type")):
        return "its cache is quantized"
    if not node.attribute("causal", 1):
        return "it is not causal"
    return "it has a number of tokens for each sequence" if node.input(_QUERIES) is not None else ""


QUIRK = Quirk(
    id="grouped-refused",
    code="DP675",
    title="GroupQueryAttention with a quantized cache, or not causal",
    ops=("com.microsoft::GroupQueryAttention",),
    outcome="create fails",
    sources=(
        "measured on 1.30.0 by tests/benchmarks/contrib_forms.py: 80070057; 1.24.4 does not load most of these forms",
    ),
    matches=_matches,
)
