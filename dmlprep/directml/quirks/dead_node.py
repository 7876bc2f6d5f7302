"""A fused graph whose results are all unused: nodes that a pass or an exporter left behind.

DirectML compiles each fused graph with its outputs. It refuses a fused graph without outputs, with E_INVALIDARG at
DmlGraphFusionHelper.cpp, and so the whole model. An unused node does no harm if its fused graph also has a used node,
if its sizes are free, or if ONNX Runtime removes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk
from dmlprep.directml.quirks.patterns import FUSION_HELPER, does_nothing, readers

_FEW = 1000
"""The most nodes that a search for constants visits."""


def _read_by(node: NodeFacts) -> list[NodeFacts]:
    return [reader for value in node.outputs if value is not None for reader in readers(value)]


def _is_output(node: NodeFacts) -> bool:
    """Return whether a result of the node is an output of the graph, directly or through nodes that do nothing."""
    stack, visited = [node], {id(node)}
    while stack:
        for value in stack.pop().outputs:
            if value is not None and value.graph_output:
                return True
            idle = [
                n for n in (value.consumers if value is not None else ()) if id(n) not in visited and does_nothing(n)
            ]
            visited.update(map(id, idle))
            stack += idle
    return False


def _is_folded(node: NodeFacts) -> bool:
    """Return whether the node computes from constants alone.

    The search stops after ``_FEW`` nodes and returns False: a large model may have many nodes that read constants.
    """
    stack, visited = [node], {id(node)}
    while stack:
        if len(visited) > _FEW:
            return False
        for value in stack.pop().inputs:
            if value is None or value.constant:
                continue
            if value.producer is None:
                return False
            if id(value.producer) not in visited:
                visited.add(id(value.producer))
                stack.append(value.producer)
    return True


def _matches(node: NodeFacts) -> str:
    if does_nothing(node) or _is_output(node) or _read_by(node) or _is_folded(node):
        return ""
    return f"no node reads the output of {node.label}"


def _shows(nodes: Sequence[NodeFacts], partitions: Mapping[int, int]) -> list[bool]:
    known: dict[int, bool] = {}
    return [_alone(node, partitions, known) for node in nodes]


def _alone(node: NodeFacts, partitions: Mapping[int, int], known: dict[int, bool]) -> bool:
    """Return whether the node is in a fused graph none of whose results is used.

    The answer is the same for all connected nodes of the fused graph; ``known`` stores it for each of them.
    """
    own = partitions.get(id(node))
    if own is None:
        return False
    stack, visited, alone = [node], {id(node)}, True
    while stack and alone:
        current = stack.pop()
        if id(current) in known:
            alone = known[id(current)]
            break
        behind = _read_by(current)
        alone = not _is_output(current) and all(partitions.get(id(n)) == own for n in behind)
        makers = [v.producer for v in current.inputs if v is not None and v.producer is not None]
        for other in (*behind, *makers):
            if partitions.get(id(other)) == own and id(other) not in visited:
                visited.add(id(other))
                stack.append(other)
    known.update(dict.fromkeys(visited, alone))
    return alone


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Remove the node, its readers, and the nodes that only it read."""
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
    title="a fused graph that no output needs",
    ops=(),
    outcome="create fails",
    sources=(MEASURED, FUSION_HELPER),
    matches=_matches,
    fused=_shows,
    rewrite=_rewrite,
)
