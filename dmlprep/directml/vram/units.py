"""The units that a session runs one after the other, in a possible order: fused graphs and single nodes."""

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

    ``on_cpu``: ``id(node)`` -> positions of the inputs that a DirectML node reads from the CPU's memory.
    """

    nodes: list[NodeFacts] = field(default_factory=list)
    on_dml: bool = False
    fused: bool = False
    on_cpu: dict[int, frozenset[int]] = field(default_factory=dict)

    def read(self, node: NodeFacts) -> list[Value]:
        """The inputs of a node of the unit, without those in ``on_cpu``; for a CPU node all its inputs."""
        away = self.on_cpu.get(id(node), frozenset())
        return [value for place, value in enumerate(node.inputs) if value is not None and place not in away]

    def constants(self, node: NodeFacts) -> list[Value]:
        """The constants among the inputs that ``read`` returns."""
        return [value for value in self.read(node) if value.constant]

    @property
    def label(self) -> str:
        """The name of its first node, with the path of its graph."""
        return self.nodes[0].path


def units_of(graph: GraphFacts, placed: Sequence[PlacedNode], tables: Tables) -> list[Unit]:
    """Return the units of one graph, in the order of execution; ``placed`` are its placed nodes, in graph order."""
    units: list[Unit] = []
    of_partition: dict[int, int] = {}
    home: dict[int, int] = {}
    for node, row in zip(graph.nodes, placed, strict=True):
        on_dml, fused = row.provider == "DmlExecutionProvider", row.partition is not None
        number = len(units) if row.partition is None else of_partition.setdefault(row.partition, len(units))
        if number == len(units):
            units.append(Unit(on_dml=on_dml, fused=fused))
        units[number].nodes.append(node)
        if on_dml and (kernel := dml_kernel(tables, node)) is not None:
            units[number].on_cpu[id(node)] = kernel.cpu_in
        home[id(node)] = number
    return _sorted(units, home)


def _sorted(units: list[Unit], home: dict[int, int]) -> list[Unit]:
    """Return the units so that each comes after those that it reads from; otherwise in the order of the graph.

    ``home``: ``id(node)`` -> index of the node's unit.
    """
    waits = [0] * len(units)
    readers: list[list[int]] = [[] for _ in units]
    for index, unit in enumerate(units):
        read = [v.producer for node in unit.nodes for v in (*node.inputs, *node.implicit) if v is not None]
        for other in {home[id(producer)] for producer in read if id(producer) in home} - {index}:
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
