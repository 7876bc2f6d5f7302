"""The nodes of a graph that DirectML runs, the fused graphs, and the reasons why other nodes are not fused.

Source: ONNX Runtime, DmlExecutionProvider/src/GraphPartitioner.cpp and DmlGraphFusionTransformer.cpp.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.directml.targets.kernels import Kernel
from dmlprep.directml.targets.support import Support, dml_kernel
from dmlprep.directml.targets.target import Target

_SMALL_INITIALIZER = 100
"""The most elements of a small initializer: kSmallInitializerThreshold in fallback_cpu_capability.cc."""

_STOPS_SEARCH = frozenset(
    ["float16", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float4e2m1"]
)


@dataclass(frozen=True)
class Division:
    """The division of one graph's nodes by a target. Every key is ``id(node)``.

    Attributes:
        kernels: the DirectML kernel that a node's version and types match; no key for a node without one.
        answers: the provider that runs each node, with the reason.
        barred: for nodes on DirectML: code and reason why the node cannot join a fused graph; both empty if it can.
        partitions: number of the fused graph that a node is in; no key for a node outside of fused graphs.
    """

    kernels: dict[int, Kernel]
    answers: dict[int, Support]
    barred: dict[int, tuple[str, str]]
    partitions: dict[int, int]


class Divisions:
    """A cache of ``divide`` for one target; other targets with the same kernels can use it too.

    The graphs must not change while this object is used.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[int, tuple[GraphFacts, Division]] = {}

    def of(self, graph: GraphFacts) -> Division:
        """Return the result of ``divide`` for a graph, computed at first use."""
        if id(graph) not in self._known:
            self._known[id(graph)] = graph, divide(graph, self._target)
        return self._known[id(graph)][1]


def divide(graph: GraphFacts, target: Target) -> Division:
    """Return the provider of each node of ``graph`` (not of its subgraphs), and the fused graphs.

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
        return Support(
            "cpu", "DP506", "the node reads only shapes and small constants, which are on the CPU", node.since
        )
    if answer.inlined:  # but it is here, because its body has no form for these inputs
        return Support(
            "none",
            "DP507",
            "this release has no kernel for it, and onnx builds no function body for these inputs",
            node.since,
        )
    return answer


def cpu_preferred(graph: GraphFacts, kernels: dict[int, Kernel]) -> set[int]:
    """``id`` of each node of this graph (not of its subgraphs) whose shape arithmetic ONNX Runtime keeps on the CPU.

    The search starts at the readers of tensors that kernels leave in CPU memory (Shape, Size) and runs in topological
    order. Source: onnxruntime/core/framework/fallback_cpu_capability.cc (GetCpuPreferredNodes).

    Args:
        kernels: ``id(node)`` -> the DirectML kernel that its version and types match, whatever its support query says.
    """
    candidates: set[int] = set()
    on_cpu: set[int] = set()  # id of values
    preferred: set[int] = set()

    def extend(values: Iterable[Value | None]) -> None:
        for value in values:
            if value is not None:
                on_cpu.add(id(value))
                candidates.update(id(c) for c in value.consumers)

    for node in graph.nodes:
        kernel = kernels.get(id(node))
        if kernel is not None:
            extend(node.output(index) for index in kernel.cpu_out)
    # Topological order: the nodes that make a node a candidate come before it.
    for node in graph.nodes:
        if id(node) not in candidates:
            continue
        kernel = kernels.get(id(node))
        if kernel is None:
            extend(node.outputs)
        elif all(_from_cpu(graph, value, index, kernel, on_cpu) for index, value in enumerate(node.inputs)):
            preferred.add(id(node))
            extend(node.outputs)
    return preferred


def _from_cpu(graph: GraphFacts, value: Value | None, index: int, kernel: Kernel, on_cpu: set[int]) -> bool:
    """Return whether an input (a small initializer, graph input or CPU tensor) allows its node to stay on the CPU.

    Omitted inputs, 16-bit and smaller floats, and CPU tensors that the DirectML kernel reads on the CPU do not.
    """
    if value is None or value.type in _STOPS_SEARCH:
        return False
    if value.initializer and (value.size or 0) <= _SMALL_INITIALIZER and value.size is not None:
        return True
    if value.graph_input and value.graph == graph.path:
        return True
    # A tensor that the DirectML kernel reads on the CPU anyway is not a reason to leave DirectML.
    return id(value) in on_cpu and index not in kernel.cpu_in


def unfusable(graph: GraphFacts, node: NodeFacts, kernel: Kernel, *, has_subgraph: bool) -> tuple[str, str]:
    """Code and reason why a node on DirectML cannot join a fused graph; both are empty if it can.

    ``has_subgraph``: whether any node of the graph has a subgraph.
    """
    if has_subgraph:
        return "DP513", "a node of this graph has a subgraph"
    if not kernel.fuses:
        return "DP514", f"a fused graph does not support {node.op}"
    if kernel.fused_inputs and len(node.inputs) != kernel.fused_inputs:
        return "DP516", f"the node has {len(node.inputs)} inputs, a fused graph supports {kernel.fused_inputs}"
    for index, value in enumerate(node.inputs):
        if value is None:
            continue
        if index in kernel.const and not (value.constant and value.graph == graph.path):
            return "DP512", f"its input {value.name} is not a constant of this graph"
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
        return f"the shape of {value.name} is unknown"
    free = [str(d or "?") for d in value.shape if not isinstance(d, int)]
    return f"{value.name} has free dimensions {', '.join(free)}" if free else ""


def partitions(graph: GraphFacts, fusable: set[int]) -> dict[int, int]:
    """``id(node)`` of each fused node -> number of its partition, counted from 0 in order of first nodes.

    Nodes are visited in ONNX Runtime's order. A fusable node joins the open partitions that it reads from (several
    become one), or opens a new one. A partition closes when a node that is not fusable reads from it.
    """
    parent: list[int] = []
    closed: set[int] = set()
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
            closed |= feeding
            continue
        mine, *others = sorted(feeding - closed) or [len(parent)]
        if mine == len(parent):  # a new one
            parent.append(mine)
        for other in others:
            parent[other] = mine
        home[id(node)] = mine
    numbers: dict[int, int] = {}
    fused = [id(node) for node in graph.nodes if id(node) in home]
    return {key: numbers.setdefault(root(home[key]), len(numbers)) for key in fused}


def _as_visited(graph: GraphFacts) -> list[NodeFacts]:
    """The nodes in ONNX Runtime's order: depth first from the last leaf, each after the nodes that it reads from.

    A leaf is a node whose outputs no node of the graph reads.

    Source: ONNX Runtime, core/graph/graph_viewer.cc and Graph::ReverseDFSFrom.
    """
    place = {id(node): index for index, node in enumerate(graph.nodes)}
    sources = [
        sorted({place[id(v.producer)] for v in [*n.inputs, *n.implicit] if v is not None and id(v.producer) in place})
        for n in graph.nodes
    ]
    read = {source for group in sources for source in group}
    stack = [(index, False) for index in range(len(graph.nodes)) if index not in read]
    order: list[NodeFacts] = []
    visited: set[int] = set()
    while stack:
        index, is_exit = stack.pop()
        if is_exit:
            order.append(graph.nodes[index])
        elif index not in visited:
            visited.add(index)
            stack.append((index, True))
            stack += [(source, False) for source in sources[index] if source not in visited]
    return order
