"""A fused graph of which nothing is read: nodes that lead nowhere, such as a pass or an exporter leaves behind.

DirectML compiles each fused graph with its outputs. One that has none is refused with E_INVALIDARG at
DmlGraphFusionHelper.cpp, and with it the whole model. A node that leads nowhere does no harm where a live node is in
the same fused graph, where its sizes are free, or where ONNX Runtime takes it out.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from dmlprep.quirks.editing import Edit
from dmlprep.quirks.patterns import FUSION_HELPER
from dmlprep.quirks.quirk import MEASURED, Quirk
from dmlprep.targets.facts import NodeFacts


def _does_nothing(node: NodeFacts) -> bool:
    """Whether ONNX Runtime takes the node out at load."""
    source, out = node.input(0), node.output()
    same_type = source is not None and out is not None and source.type == out.type
    return node.key in ("Identity", "Dropout") or (node.key == "Cast" and same_type)


def _readers(node: NodeFacts) -> list[NodeFacts]:
    """What reads a node once ONNX Runtime has taken out the nodes that do nothing."""
    found: list[NodeFacts] = []
    stack = [n for v in node.outputs if v is not None for n in v.consumers]
    while stack:
        reader = stack.pop()
        if _does_nothing(reader):
            stack += [n for v in reader.outputs if v is not None for n in v.consumers]
        else:
            found.append(reader)
    return found


def _is_output(node: NodeFacts) -> bool:
    """Whether a result of the node is an output of the graph, by way of nodes that do nothing as well."""
    stack = [node]
    while stack:
        for value in stack.pop().outputs:
            if value is not None and value.graph_output:
                return True
            stack += [n for n in (value.consumers if value is not None else ()) if _does_nothing(n)]
    return False


def _is_folded(node: NodeFacts) -> bool:
    """Whether the node computes from constants alone."""
    stack, seen = [node], {id(node)}
    while stack:
        for value in stack.pop().inputs:
            if value is None or value.constant:
                continue
            if value.producer is None:
                return False
            if id(value.producer) not in seen:
                seen.add(id(value.producer))
                stack.append(value.producer)
    return True


def _matches(node: NodeFacts) -> str:
    if _does_nothing(node) or _is_output(node) or _readers(node) or _is_folded(node):
        return ""
    return f"nothing reads what {node.label} computes"


def _shows(node: NodeFacts, partitions: Mapping[int, int]) -> bool:
    """Whether nothing else comes out of the fused graph of the node: its nodes are joined by the values they share."""
    own = partitions.get(id(node))
    stack, seen = [node], {id(node)}
    while stack:
        current = stack.pop()
        readers = _readers(current)
        if _is_output(current) or any(partitions.get(id(n)) != own for n in readers):
            return False
        makers = [v.producer for v in current.inputs if v is not None and v.producer is not None]
        for other in (*readers, *makers):
            if partitions.get(id(other)) == own and id(other) not in seen:
                seen.add(id(other))
                stack.append(other)
    return own is not None


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Remove the node, what reads it, and what only it read."""
    stack: list[ir.Node] = [edit.node]
    while stack:
        node = stack[-1]
        readers = [user for v in node.outputs for user, _ in v.uses()]
        if readers:
            stack.append(readers[0])
            continue
        stack.pop()
        if node.graph is None or any(v.is_graph_output() for v in node.outputs):
            continue
        sources = [maker for v in node.inputs if v is not None and (maker := v.producer()) is not None]
        edit.graph.remove(node, safe=True)
        stack += [n for n in sources if n.graph is edit.graph and not any(v.uses() for v in n.outputs)]
    return ""


QUIRK = Quirk(
    id="dead-node",
    code="DP644",
    title="a fused graph of which nothing is read",
    ops=(),
    outcome="create fails",
    first="1.15",
    sources=(MEASURED, FUSION_HELPER),
    matches=_matches,
    fused=_shows,
    rewrite=_rewrite,
)
