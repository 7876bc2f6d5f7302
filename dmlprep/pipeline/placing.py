"""Add placement (the device of each node) to records, and give passes functions that place a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from dmlprep.directml.placement import Placement, choose_opset, place
from dmlprep.directml.placement.place import place_facts
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.placement.report import placement_findings, version_findings
from dmlprep.directml.placement.table import node_table
from dmlprep.directml.quirks import find_quirks
from dmlprep.directml.targets import Target
from dmlprep.directml.targets.facts import GraphFacts
from dmlprep.directml.vram import estimate
from dmlprep.graph.model import Frozen, Model
from dmlprep.graph.model.collector import paused_collector
from dmlprep.passes import Context, OnCpu
from dmlprep.record import Finding, RunRecord
from dmlprep.record.memory import MemoryEstimate
from dmlprep.record.nodes import NodeTable, NodeTables


@dataclass(frozen=True)
class Placed:
    """The nodes of a model, and where they run on the target.

    Attributes:
        faults: the errors that DirectML is known to make with the model.
    """

    graph: GraphFacts
    placement: Placement
    target: Target
    faults: list[Finding]

    @classmethod
    def of(cls, model: Model, target: Target, frozen: Frozen | None) -> Placed:
        """Place a model; ``frozen``: its serialized form, or ``None`` to take it from ``model``."""
        with paused_collector():
            graph = read_facts(model, target.tables, frozen)
            placement = place_facts(graph, target, model.opset)
            return cls(graph, placement, target, _known_faults(model, target, graph, placement))

    def memory(self, vram: int | None = None) -> MemoryEstimate:
        """Return the memory that a session needs; ``vram``: memory of the device in bytes, if known."""
        with paused_collector():
            return estimate(self.graph, self.placement, self.target, vram)

    def table(self) -> NodeTable:
        """Return the nodes as a table for records."""
        with paused_collector():
            return node_table(self.graph, self.placement)


def _known_faults(model: Model, target: Target, graph: GraphFacts, placement: Placement) -> list[Finding]:
    """Return the certain errors on DirectML: the session fails, a node fails, or its results are wrong."""
    if target.opset_only:
        return []
    hits = [hit.finding() for hit in find_quirks(graph, target)]
    unknown = [f for f in placement_findings(placement, placement.opset) if f.code == "DP507" and _is_shipped(f)]
    return [f for f in (*version_findings(model, target), *unknown, *hits) if f.severity == "error"]


def _is_shipped(one: Finding) -> bool:
    """Return False if the finding's operator is the user's own: the application registers its kernel."""
    domain = str(one.facts["op"]).rpartition("::")[0]
    return domain in ("", "ai.onnx.ml", "com.microsoft")


def note_before(record: RunRecord, model: Model, target: Target, vram: int | None = None) -> Placed:
    """Write into the record where each node would run before the steps, and the memory that a session needs.

    Called before the steps, so that the record of a model that a step refuses has these facts too.

    Args:
        vram: memory of the device in bytes, with which the need is compared; ``None``: unknown.

    Returns:
        the placed nodes, with the errors that DirectML is known to make.

    Raises:
        UsageError: the target's kernels are not known.
    """
    placed, facts = Placed.of(model, target, model.opened), record.facts
    facts.placement_before, facts.memory = placed.placement.summary(), placed.memory(vram)
    facts.nodes = NodeTables(placed.table())
    return placed


def note_after(
    record: RunRecord, model: Model, before: Placed, frozen: Frozen | None, *, changed: bool, vram: int | None = None
) -> Placed:
    """Write into the record where each node would run after the steps, and the memory that a session needs.

    Args:
        before: the nodes before the steps.
        frozen: the model after the steps, serialized; ``None``: it is taken from ``model``.
        changed: False if no step changed the model: the facts from before the steps then count.
        vram: memory of the device in bytes; ``None``: unknown.

    Returns:
        the placed nodes, with the errors that DirectML is known to make.
    """
    facts = record.facts
    if not changed:
        facts.placement_after = facts.placement_before
        return before
    placed = Placed.of(model, before.target, frozen)
    assert facts.nodes is not None, "note_before must come first"
    facts.placement_after, facts.memory = placed.placement.summary(), placed.memory(vram)
    facts.nodes = msgspec.structs.replace(facts.nodes, after=placed.table())
    return placed


def context_for(target: Target, **more: Any) -> Context:
    """Return the context that a pass gets when it runs; its functions place models on ``target``.

    ``more`` sets other fields of ``Context``.
    """

    def on_cpu(model: Model, frozen: Frozen | None = None) -> list[OnCpu]:
        return [
            OnCpu(n.name, n.op)
            for n in place(model, target, frozen).nodes
            if n.provider != "DmlExecutionProvider" and n.role == "compute" and n.code != "DP506"
        ]

    return Context(target, choose_opset=lambda m, frozen: choose_opset(m, target, frozen), on_cpu=on_cpu, **more)
