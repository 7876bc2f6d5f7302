"""Place every node of a model on a target, offline."""

from __future__ import annotations

from dmlprep.model import Model
from dmlprep.model.collector import paused_collector
from dmlprep.placement.cpu_preferred import cpu_preferred
from dmlprep.placement.crossings import crossings, feed_bytes
from dmlprep.placement.fusion import partitions, unfusable
from dmlprep.placement.placement import PlacedNode, Placement, ProviderName
from dmlprep.placement.reading import read_facts
from dmlprep.placement.roles import roles
from dmlprep.targets import Target
from dmlprep.targets.facts import GraphFacts, NodeFacts
from dmlprep.targets.flops import flops
from dmlprep.targets.kernels import Kernel
from dmlprep.targets.support import Support, dml_kernel

__all__ = ["place", "place_facts"]

_PROVIDER: dict[str, ProviderName] = {
    "dml": "DmlExecutionProvider",
    "cpu": "CPUExecutionProvider",
    "none": "CPUExecutionProvider",
}


def place(model: Model, target: Target) -> Placement:
    """Where each node of ``model`` runs on ``target``, and why. Reads no weights.

    Raises:
        UsageError: the target's kernels are not known.
    """
    with paused_collector():
        return place_facts(read_facts(model, target.tables), target, model.opset)


def place_facts(graph: GraphFacts, target: Target, opset: int) -> Placement:
    """``place`` for facts that ``read_facts`` gave for this target's tables."""
    tables = target.tables
    kind = roles(graph)
    placed: list[PlacedNode] = []
    on_dml: set[int] = set()
    kernels: dict[int, Kernel] = {}
    fused_graphs = 0
    for inner in graph.all_graphs():
        own = {id(n): k for n in inner.nodes if (k := dml_kernel(tables, n)) is not None}
        preferred = cpu_preferred(inner, own)
        answers = {id(n): _answer(target, n, id(n) in preferred) for n in inner.nodes}
        here = {key for key, answer in answers.items() if answer.provider == "dml"}
        on_dml |= here
        kernels.update(own)
        has_subgraph = any(n.subgraphs for n in inner.nodes)
        barred = {
            id(n): unfusable(inner, n, own[id(n)], has_subgraph=has_subgraph) for n in inner.nodes if id(n) in here
        }
        home = partitions(inner, {key for key, (code, _) in barred.items() if not code})
        fused_graphs += len(set(home.values()))
        for node in inner.nodes:
            answer = answers[id(node)]
            code, why = barred.get(id(node), ("", ""))
            placed.append(
                PlacedNode(
                    name=node.label,
                    graph=inner.path,
                    op=node.key,
                    since_version=node.since,
                    provider=_PROVIDER[answer.provider],
                    code=answer.code,
                    reason=answer.reason,
                    partition=home.get(id(node)),
                    not_fused=code,
                    not_fused_reason=why,
                    role=kind[id(node)],
                    origin=node.origin,
                    flops=flops(node),
                )
            )
    crossed = crossings(graph, on_dml, kernels)
    dml = [n for n in placed if n.provider == "DmlExecutionProvider"]
    return Placement(
        target=target.name,
        opset=opset,
        nodes=placed,
        dml_nodes=len(dml),
        flops=sum(n.flops or 0 for n in placed),
        dml_flops=sum(n.flops or 0 for n in dml),
        partitions=fused_graphs,
        crossings=crossed,
        crossing_bytes=sum(c.nbytes or 0 for c in crossed),
        feed_bytes=feed_bytes(graph),
        compute_on_cpu=[n.name for n in placed if n.provider != "DmlExecutionProvider" and n.role == "compute"],
        free_dimensions=_free_dimensions(graph),
    )


def _answer(target: Target, node: NodeFacts, stays: bool) -> Support:
    answer = target.support(node)
    if stays and answer.provider == "dml":
        return Support("cpu", "DP506", "reads only shapes and small constants that lie on the CPU", node.since)
    if answer.inlined:  # and yet it is here: its body could not be made for these inputs
        return Support("none", "DP507", "no kernel in this release, and no function body for these inputs", node.since)
    return answer


def _free_dimensions(graph: GraphFacts) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for value in graph.inputs:
        if value.initializer:
            continue
        for axis, size in enumerate(value.shape or ()):
            if not isinstance(size, int):
                found.setdefault(size or f"{value.name}[{axis}]", []).append(f"{value.name}[{axis}]")
    return found
