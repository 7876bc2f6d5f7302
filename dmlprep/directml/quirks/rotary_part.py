"""RotaryEmbedding of a later output of a node, such as the second part of a Split.

In a fused graph, DirectML's kernel reads the node's first output instead: keys that follow queries in one product
become rotated queries. Nodes with free sizes are fused if the session captures its graph, as sessions of language
models do.
"""

from __future__ import annotations

from collections.abc import Mapping

from dmlprep.directml.quirks.declaring import Edit, Match, NodeFacts, Quirk, Value
from dmlprep.directml.quirks.patterns import without_identities


def _misread(node: NodeFacts) -> dict[int, tuple[Value, NodeFacts]]:
    """Position -> (value, its node) for the inputs that are not the first output of a node, which DirectML misreads.

    If only a part of each head is rotated, DirectML reads input 0, the data, right.
    """
    partial = int(node.attribute("rotary_embedding_dim", 0)) > 0
    read = {index: without_identities(node.input(index)) for index in range(1 if partial else 0, 4)}
    makers = {i: (v, v.producer) for i, v in read.items() if v is not None and v.producer is not None}
    return {i: (value, maker) for i, (value, maker) in makers.items() if maker.outputs.index(value)}


def _matches(node: NodeFacts) -> str:
    for value, maker in _misread(node).values():
        return f"it reads {value.name}, which is not the first output of {maker.label}"
    return ""


def _shown(node: NodeFacts, partitions: Mapping[int, int]) -> bool | Match:
    """Return whether a node and its source are in one fused graph; a match that is not sure if they may become so."""
    own = partitions.get(id(node))
    if own is None:
        return Match("; this matters only if the session captures its graph", sure=False)
    return any(partitions.get(id(maker)) == own for _, maker in _misread(node).values())


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Insert a Concat of one value between both nodes: its only output is its first."""
    for index in _misread(facts):
        value, shape = edit.input(index), facts.required(index).shape
        edit.set_input(index, edit.before("Concat", [value], {"axis": 0}, like=value, shape=shape))
    return ""


QUIRK = Quirk(
    id="rotary-part",
    code="DP659",
    title="RotaryEmbedding of a later output of a node",
    ops=("com.microsoft::RotaryEmbedding",),
    outcome="wrong numbers",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/later_outputs.py: each input of the node gets the first "
        "output; no other operator of ONNX's node tests and of DirectML's fused kernels does",
    ),
    matches=_matches,
    fused=lambda nodes, partitions: [_shown(node, partitions) for node in nodes],
    rewrite=_rewrite,
)
