"""GroupQueryAttention that normalizes its queries and keys: DirectML fails to create a session.

The rewrite normalizes each head before the node. The node normalizes before it rotates, so the quirk `grouped-rotary`
waits for this rewrite.
"""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk
from dmlprep.directml.quirks.grouped_packed import unpack

_WEIGHTS = 14, 15
_SIDES = (("num_heads", "q_norm_epsilon"), ("kv_num_heads", "k_norm_epsilon"))


def norms(node: NodeFacts) -> bool:
    """Return whether a GroupQueryAttention normalizes its queries, its keys or both itself."""
    return any(node.input(index) is not None for index in _WEIGHTS)


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Normalize queries and keys before the node, head by head."""
    heads = [int(facts.attribute(name, 0)) for name, _ in _SIDES]
    if any(facts.input(index) is None for index in (0, *_WEIGHTS)) or min(heads) < 1:
        return "it normalizes only queries or only keys"
    if facts.rank(0) != 3:
        return "its queries do not have three dimensions, or their rank is unknown"
    if edit.optional(1) is None and (why := unpack(facts, edit)):
        return why
    batch, tokens, _ = facts.required(0).dims
    both = float(facts.attribute("qk_norm_epsilon", 1e-6))
    for index, (count, (_, epsilon)) in enumerate(zip(heads, _SIDES, strict=True)):
        data, weight = edit.input(index), facts.required(_WEIGHTS[index])
        size = weight.size
        split = edit.integers([0, 0, count, -1], "heads")
        sizes = [batch, tokens, count, size]
        apart = edit.before("Reshape", [data, split], like=data, shape=sizes)
        attributes = {"axis": -1, "epsilon": float(facts.attribute(epsilon, both)), "stash_type": 1}
        slots = [apart, edit.input(_WEIGHTS[index])]
        normed = edit.before("SimplifiedLayerNormalization", slots, attributes, like=data, shape=sizes)
        width = count * size if size is not None else None
        joined = [normed, edit.integers([0, 0, -1], "joined")]
        edit.set_input(index, edit.before("Reshape", joined, like=data, shape=[batch, tokens, width]))
    for index in _WEIGHTS:
        edit.set_input(index, None)
    edit.shorten()
    edit.drop("qk_norm_epsilon", *(name for _, name in _SIDES))
    return ""


QUIRK = Quirk(
    id="grouped-norm",
    code="DP676",
    title="GroupQueryAttention that normalizes queries and keys",
    ops=("com.microsoft::GroupQueryAttention",),
    outcome="create fails",
    sources=("measured by tests/benchmarks/contrib_forms.py: 80070057 with q_norm_weight and k_norm_weight",),
    matches=lambda node: "it normalizes its queries and keys" if norms(node) else "",
    rewrite=_rewrite,
)
