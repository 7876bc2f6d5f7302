"""Place every node of a model on a target, offline."""

from __future__ import annotations

from collections.abc import Mapping

from dmlprep.directml.placement.crossings import crossings, feed_bytes
from dmlprep.directml.placement.placement import PlacedNode, Placement
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.placement.roles import Role, roles
from dmlprep.directml.targets import Target
from dmlprep.directml.targets.facts import GraphFacts
from dmlprep.directml.targets.flops import flops
from dmlprep.directml.targets.fusion import Divisions
from dmlprep.directml.targets.kernels import Kernel
from dmlprep.graph.model import Frozen, Model
from dmlprep.graph.model.collector import paused_collector


def place(model: Model, target: Target, frozen: Frozen | None = None) -> Placement:
    """Where each node of ``model`` runs on ``target``, and why. Reads no weights.

    Raises:
        UsageError: the target's kernels are not known.
    """
    with paused_collector():
        return place_facts(read_facts(model, target.tables, frozen), target, model.opset)


def place_facts(
    graph: GraphFacts,
    target: Target,
    opset: int,
    kind: Mapping[int, Role] | None = None,
    divisions: Divisions | None = None,
) -> Placement:
    """``place`` for facts that ``read_facts`` gave for this target's tables; ``kind`` is their ``roles``."""
    kind = roles(graph) if kind is None else kind
    divisions = Divisions(target) if divisions is None else divisions
    placed: list[PlacedNode] = []
    on_dml: set[int] = set()
    kernels: dict[int, Kernel] = {}
    fused_graphs = 0
    for inner in graph.all_graphs():
        division = divisions.of(inner)
        on_dml |= {key for key, answer in division.answers.items() if answer.provider == "dml"}
        kernels.update(division.kernels)
        fused_graphs += len(set(division.partitions.values()))
        for node in inner.nodes:
            answer = division.answers[id(node)]
            code, why = division.barred.get(id(node), ("", ""))
            placed.append(
                PlacedNode(
                    name=node.label,
                    graph=inner.path,
                    op=node.key,
                    since_version=node.since,
                    provider="DmlExecutionProvider" if answer.provider == "dml" else "CPUExecutionProvider",
                    code=answer.code,
                    reason=answer.reason,
                    partition=division.partitions.get(id(node)),
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


def _free_dimensions(graph: GraphFacts) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for value in graph.inputs:
        for axis, size in enumerate(value.shape or ()):
            if not isinstance(size, int) and not value.initializer:
                found.setdefault(size or f"{value.name}[{axis}]", []).append(f"{value.name}[{axis}]")
    return found
