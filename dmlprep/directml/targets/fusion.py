"""Which nodes of a graph DirectML gets, which of them run inside a fused graph, and what keeps the others out.

Source: ONNX Runtime, DmlExecutionProvider/src/GraphPartitioner.cpp and DmlGraphFusionTransformer.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from dmlprep.directml.targets.cpu_preferred import cpu_preferred
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.directml.targets.kernels import Kernel
from dmlprep.directml.targets.support import Support, dml_kernel
from dmlprep.directml.targets.target import Target


@dataclass(frozen=True)
class Division:
    """How a target divides the nodes of one graph. Every key is ``id(node)``.

    Attributes:
        kernels: the DirectML kernel that a node's version and types match.
        answers: who has a kernel for each node.
        barred: code and reason why a node on DirectML cannot join a fused graph; empty where it can.
        partitions: number of the fused graph that a node is in.
    """

    kernels: dict[int, Kernel]
    answers: dict[int, Support]
    barred: dict[int, tuple[str, str]]
    partitions: dict[int, int]


class Divisions:
    """How one target, and every target with the same kernels, divides graphs: each once, when it is asked for.

    The graphs must stay as they are meanwhile.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[int, tuple[GraphFacts, Division]] = {}

    def of(self, graph: GraphFacts) -> Division:
        """``divide`` of a graph."""
        if id(graph) not in self._known:
            self._known[id(graph)] = graph, divide(graph, self._target)
        return self._known[id(graph)][1]


def divide(graph: GraphFacts, target: Target) -> Division:
    """Who runs each node of ``graph`` (not of its subgraphs), and in which fused graph.

    Raises:
        UsageError: the target's kernels are not known.
    """
    own = {id(n): k for n in graph.nodes if (k := dml_kernel(target.tables, n)) is not None}
    preferred = cpu_preferred(graph, own)
    answers = {id(n): _answer(target, n, id(n) in preferred) for n in graph.nodes}
    has_subgraph = any(n.subgraphs for n in graph.nodes)
    barred = {
        id(n): unfusable(graph, n, own[id(n)], has_subgraph=has_subgraph)
        for n in graph.nodes
        if answers[id(n)].provider == "dml"
    }
    return Division(own, answers, barred, partitions(graph, {key for key, (code, _) in barred.items() if not code}))


def _answer(target: Target, node: NodeFacts, stays: bool) -> Support:
    answer = target.support(node)
    if stays and answer.provider == "dml":
        return Support("cpu", "DP506", "reads only shapes and small constants that lie on the CPU", node.since)
    if answer.inlined:  # and yet it is here: its body could not be made for these inputs
        return Support("none", "DP507", "no kernel in this release, and no function body for these inputs", node.since)
    return answer


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

    Nodes are met in ONNX Runtime's order. A node joins the open partitions that feed it (several become one); a
    partition is closed as soon as a node outside reads from it.
    """
    parent: list[int] = []
    closed: list[bool] = []
    home: dict[int, int] = {}  # id(node) -> partition

    def root(partition: int) -> int:
        while parent[partition] != partition:
            parent[partition] = parent[parent[partition]]
            partition = parent[partition]
        return partition

    for node in _as_visited(graph):
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


def _as_visited(graph: GraphFacts) -> list[NodeFacts]:
    """The nodes as ONNX Runtime orders them: behind what they read, those that lead to the last leaf first.

    Source: ONNX Runtime, core/graph/graph_viewer.cc and Graph::ReverseDFSFrom.
    """
    place = {id(node): index for index, node in enumerate(graph.nodes)}
    sources = [
        sorted({place[id(v.producer)] for v in [*n.inputs, *n.implicit] if v is not None and id(v.producer) in place})
        for n in graph.nodes
    ]
    read = {source for found in sources for source in found}
    stack = [(index, False) for index in range(len(graph.nodes)) if index not in read]
    order: list[NodeFacts] = []
    seen: set[int] = set()
    while stack:
        index, left = stack.pop()
        if left:
            order.append(graph.nodes[index])
        elif index not in seen:
            seen.add(index)
            stack.append((index, True))
            stack += [(source, False) for source in sources[index] if source not in seen]
    return order
