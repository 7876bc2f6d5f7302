"""EmbedLayerNormalization that outputs the index of a mask but has no mask: DirectML does not write the output."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import Edit, Match, NodeFacts, Quirk

_MASK, _INDEX = 7, 1


def _matches(node: NodeFacts) -> str | Match:
    index = node.output(_INDEX)
    is_read = index is not None and (index.graph_output or bool(index.consumers))
    # The output has the previous contents of the memory; fused graphs gave zeros.
    return Match("its mask index is used, but it has no mask", sure=False) if is_read and not node.input(_MASK) else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Add a mask of zeros: its sum is the index that the CPU returns, and nothing else depends on it."""
    ids = edit.input()
    edit.set_input(_MASK, edit.before("Sub", [ids, ids], like=ids, shape=facts.required().shape))
    return ""


QUIRK = Quirk(
    id="embed-mask-index",
    code="DP681",
    title="EmbedLayerNormalization that gives a mask index without a mask",
    ops=("com.microsoft::EmbedLayerNormalization",),
    outcome="wrong numbers",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/contrib_forms.py: numbers of 1e9 outside of fused graphs, "
        "where the CPU gives 0",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
