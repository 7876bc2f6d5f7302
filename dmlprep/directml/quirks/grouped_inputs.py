"""GroupQueryAttention with inputs or attributes that DirectML ignores, or with which it fails to create a session."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import Match, NodeFacts, Quirk

_TOTAL, _BIAS, _SINK, _SCORES = 6, 10, 11, 3


def _matches(node: NodeFacts) -> str | Match:
    cap = float(node.attribute("softcap", 0.0))
    if cap:
        return f"its scores are capped at {cap:g} (softcap)"
    if int(node.attribute("smooth_softmax", 0)) > 0:
        return "smooth_softmax is set"
    if node.input(_BIAS) is not None:
        return "a bias is added to its scores"
    if node.input(_SINK) is not None:
        return "it has an attention sink (head_sink)"
    if node.output(_SCORES) is not None:
        return "its scores are an output, which DirectML leaves empty"
    if node.attribute("sliding_window_cache", 0):
        return "its cache contains only a window (sliding_window_cache)"
    window = int(node.attribute("local_window_size", -1))
    if window < 0:
        return ""
    known = node.integers(_TOTAL)
    if known is None:
        return Match(f"the sequence might be longer than its window of {window}", sure=False)
    return f"its window of {window} is shorter than the sequence of {known[0]}" if known and known[0] > window else ""


QUIRK = Quirk(
    id="grouped-ignored",
    code="DP658",
    title="GroupQueryAttention with a window, a cap, a bias or a sink",
    ops=("com.microsoft::GroupQueryAttention",),
    outcome="wrong numbers",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/grouped_forms.py: the outputs are those of plain causal "
        "attention",
        "onnxruntime/core/providers/dml/DmlExecutionProvider/src/Operators/DmlOperatorGroupQueryAttention.cpp reads "
        "none of softcap, local_window_size, sliding_window_cache, smooth_softmax, attention_bias, head_sink",
    ),
    matches=_matches,
)


_PAST, _CACHES, _QUERIES = (3, 4), (1, 2), 16


def _matches_refused(node: NodeFacts) -> str:
    caches = [*map(node.input, _PAST), *map(node.output, _CACHES)]
    if any(value is not None and "int" in value.type for value in caches):
        return "its cache is quantized"
    if any(node.attribute(name, "NONE") != "NONE" for name in ("k_quant_type", "v_quant_type")):
        return "its cache is quantized"
    if not node.attribute("causal", 1):
        return "it is not causal"
    return "it has a number of tokens for each sequence" if node.input(_QUERIES) is not None else ""


QUIRK_REFUSED = Quirk(
    id="grouped-refused",
    code="DP675",
    title="GroupQueryAttention with a quantized cache, or not causal",
    ops=("com.microsoft::GroupQueryAttention",),
    outcome="create fails",
    sources=(
        "measured on 1.30.0 by tests/benchmarks/contrib_forms.py: 80070057; 1.24.4 does not load most of these forms",
    ),
    matches=_matches_refused,
)
