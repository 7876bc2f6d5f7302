"""Which nodes on DirectML run inside a fused graph, and what keeps the others out.

Source: ONNX Runtime, DmlExecutionProvider/src/GraphPartitioner.cpp and DmlGraphFusionTransformer.cpp.
"""

from __future__ import annotations

from dmlprep.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.targets.kernels import Kernel

__all__ = ["partitions", "unfusable"]


def unfusable(graph: GraphFacts, node: NodeFacts, kernel: Kernel, *, has_subgraph: bool) -> tuple[str, str]:
    """Code and reason why a node on DirectML cannot join a fused graph; empty where it can."""
    if has_subgraph:
        return "DP513", "a node of this graph has a subgraph"
    if not kernel.fuses:
        return "DP514", f"no fused graph takes {node.op}"
    if kernel.fused_inputs and len(node.inputs) != kernel.fused_inputs:
        return "DP516", f"{len(node.inputs)} inputs, a fused graph takes {kernel.fused_inputs}"
    for index, value in enumerate(node.inputs):
        if value is None:
            continue
        if index in kernel.const and not (value.constant and value.graph == graph.path):
            return "DP512", f"{value.name} is not constant"
        if why := _not_static(value):
            return "DP511", why
        if index not in kernel.const and value.size == 0:
            return "DP515", f"{value.name} is empty"
    for value in node.outputs:
        if value is not None and (why := _not_static(value)):
            return "DP511", why
        if value is not None and value.size == 0:
            return "DP515", f"{value.name} is empty"
    return "", ""


def _not_static(value: Value) -> str:
    if value.shape is None:
        return f"the shape of {value.name} is not known"
    free = [str(d or "?") for d in value.shape if not isinstance(d, int)]
    return f"{value.name} has free dimensions {', '.join(free)}" if free else ""


def partitions(graph: GraphFacts, fusable: set[int]) -> dict[int, int]:
    """``id(node)`` of each fused node -> number of its partition, counted from 0 in order of first nodes.

    A node joins the open partitions that feed it (several become one); a partition is closed as soon as a node outside
    reads from it.
    """
    parent: list[int] = []
    closed: list[bool] = []
    home: dict[int, int] = {}  # id(node) -> partition

    def root(partition: int) -> int:
        while parent[partition] != partition:
            parent[partition] = parent[parent[partition]]
            partition = parent[partition]
        return partition

    for node in graph.nodes:
        feeding = {
            root(home[id(value.producer)])
            for value in [*node.inputs, *node.implicit]
            if value is not None and value.producer is not None and id(value.producer) in home
        }
        if id(node) not in fusable:
            for partition in feeding:
                closed[partition] = True
            continue
        open_ones = sorted(p for p in feeding if not closed[p])
        for partition in feeding.difference(open_ones):
            closed[partition] = True
        if open_ones:
            mine = open_ones[0]
            for other in open_ones[1:]:
                parent[other] = mine
        else:
            mine = len(parent)
            parent.append(mine)
            closed.append(False)
        home[id(node)] = mine
    numbers: dict[int, int] = {}
    return {
        key: numbers.setdefault(root(partition), len(numbers))
        for node in graph.nodes
        if (key := id(node)) in home and (partition := home[key]) is not None
    }
