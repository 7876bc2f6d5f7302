"""RotaryEmbedding of a later output of a node, such as of the second part of a Split.

In a fused graph, DirectML's kernel reads the node's first output in its place: keys that stand behind queries in one
product become rotated queries. Nodes with free sizes are fused where the session captures its graph, as sessions of
language models do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import Match, Quirk
from dmlprep.directml.targets.facts import NodeFacts, Value


def _later(value: Value | None) -> Value | None:
    """The value by way of Identities, which ONNX Runtime takes out, where it is not the first output of its node."""
    while value is not None and value.producer is not None and value.producer.key == "Identity":
        value = value.producer.input(0)
    if value is None or value.producer is None:
        return None
    return value if value.producer.outputs.index(value) else None


def _misread(node: NodeFacts) -> list[int]:
    """Inputs of the node that are later outputs. Data of which a part of each head is rotated is read rightly."""
    partial = int(node.attribute("rotary_embedding_dim", 0)) > 0
    return [i for i in range(1 if partial else 0, 4) if _later(node.input(i)) is not None]


def _matches(node: NodeFacts) -> str:
    for index in _misread(node):
        value = _later(node.input(index))
        if value is not None and value.producer is not None:
            return f"{value.name} is not the first output of {value.producer.label}"
    return ""


def _shown(node: NodeFacts, partitions: Mapping[int, int]) -> bool | Match:
    """Whether both nodes are in one fused graph, or may be where the session captures."""
    makers = [value.producer for i in _misread(node) if (value := _later(node.input(i))) is not None]
    own = partitions.get(id(node))
    if own is None:
        return Match("; this matters where the session captures its graph", sure=False)
    return any(partitions.get(id(maker)) == own for maker in makers)


def _shows(nodes: Sequence[NodeFacts], partitions: Mapping[int, int]) -> list[bool | Match]:
    return [_shown(node, partitions) for node in nodes]


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Put a Concat of the value alone before the node: its one output is the first."""
    for index in _misread(facts):
        value = edit.node.inputs[index]
        known = facts.input(index)
        assert value is not None
        shape = known.shape if known is not None else None
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
    fused=_shows,
    rewrite=_rewrite,
)
