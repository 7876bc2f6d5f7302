"""What a session runs one after the other: fused graphs and single nodes, in an order in which they can run."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from dmlprep.directml.placement.placement import PlacedNode
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.directml.targets.kernels import Tables
from dmlprep.directml.targets.support import dml_kernel


@dataclass
class Unit:
    """A fused graph, or one node.

    Attributes:
        nodes: in the order of the graph.
        on_dml: whether DirectML runs it.
        fused: whether it is a fused graph.
        on_cpu: of each node, by its id, the places of inputs that are read from the CPU's memory.
    """

    nodes: list[NodeFacts] = field(default_factory=list)
    on_dml: bool = False
    fused: bool = False
    on_cpu: dict[int, frozenset[int]] = field(default_factory=dict)

    def read(self, node: NodeFacts) -> list[Value]:
        """What a node reads from the device's memory."""
        away = self.on_cpu.get(id(node), frozenset())
        return [value for place, value in enumerate(node.inputs) if value is not None and place not in away]

    def constants(self, node: NodeFacts) -> list[Value]:
        """Those of ``read`` that are weights."""
        return [value for value in self.read(node) if value.constant]

    @property
    def label(self) -> str:
        """Of its first node."""
        return self.nodes[0].path


def units_of(graph: GraphFacts, placed: Sequence[PlacedNode], tables: Tables) -> list[Unit]:
    """The units of one graph, in the order of execution.

    Args:
        placed: of its nodes, in their order.
        tables: of the target.
    """
    units: list[Unit] = []
    of_partition: dict[int, Unit] = {}
    home: dict[int, int] = {}
    number: dict[int, int] = {}
    for node, row in zip(graph.nodes, placed, strict=True):
        on_dml = row.provider == "DmlExecutionProvider"
        unit = of_partition.get(row.partition) if row.partition is not None else None
        if unit is None:
            unit = Unit(on_dml=on_dml, fused=row.partition is not None)
            number[id(unit)] = len(units)
            units.append(unit)
            if row.partition is not None:
                of_partition[row.partition] = unit
        unit.nodes.append(node)
        if on_dml and (kernel := dml_kernel(tables, node)) is not None:
            unit.on_cpu[id(node)] = kernel.cpu_in
        home[id(node)] = number[id(unit)]
    return _sorted(units, home)


def _read(node: NodeFacts) -> list[Value]:
    return [value for value in [*node.inputs, *node.implicit] if value is not None]


def _sorted(units: list[Unit], home: dict[int, int]) -> list[Unit]:
    """Behind what they read; of those that can run, the one that stands first in the graph."""
    waits = [0] * len(units)
    readers: list[list[int]] = [[] for _ in units]
    for index, unit in enumerate(units):
        needs = {home[id(v.producer)] for node in unit.nodes for v in _read(node) if id(v.producer) in home}
        for other in needs - {index}:
            waits[index] += 1
            readers[other].append(index)
    ready = [index for index, count in enumerate(waits) if not count]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(units[index])
        for reader in readers[index]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, reader)
    return order
