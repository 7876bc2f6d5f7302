"""The tensors of one run, each with the steps during which the provider has a buffer for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dmlprep.directml.targets.facts import GraphFacts, Value
from dmlprep.directml.vram.fused import SizeOf, inner_buffers
from dmlprep.directml.vram.operators import scratch_bytes
from dmlprep.directml.vram.units import Unit
from dmlprep.graph.analysis.liveness import Buffer, held_at, live_peak, pooled_bytes
from dmlprep.record.memory import Held

LIKENESS = 0.6
"""A tensor inside a fused graph reuses a free block if the smaller of the two has at least this share of the larger
one's size. Among several tested shares, this one brings eleven models nearest to the memory that DirectML 1.15.4
requests (``docs/memory.md``)."""

_ALIGNMENT = 256
"""Bytes: the alignment of blocks inside a fused graph (DML_TEMPORARY_BUFFER_ALIGNMENT)."""

ALIASES = frozenset(["Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"])
"""Operators whose output uses the memory of their input, in ONNX Runtime's own plan."""


@dataclass
class Tensors:
    """The tensors of one run, over all graphs of a model. A step is the execution of a fused graph or of one node.

    Attributes:
        buffers: each tensor's name, size in bytes, and first and last step in memory.
        about: a description of each buffer, in the same order.
        labels: the label of each step.
        inside: step of a fused graph -> the labels of its nodes, and the tensors inside it.
        up, down: size in bytes of each input that a run copies to the device first, and of each output that it copies
            back last.
    """

    buffers: list[Buffer] = field(default_factory=list)
    about: list[Held] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    inside: dict[int, tuple[list[str], list[Buffer]]] = field(default_factory=dict)
    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)

    def add(self, held: Held, first: int, last: int) -> None:
        """Add a buffer that is in memory from step ``first`` to step ``last``."""
        self.buffers.append(Buffer(held.name, held.nbytes, first, last))
        self.about.append(held)


def tensors_of(graph: GraphFacts, units: Mapping[str, Sequence[Unit]], size: SizeOf) -> Tensors:
    """Return the tensors of one run of ``graph``; each subgraph is assumed to run once, right after its node.

    ``units`` are the units of each graph (path -> fused graphs and nodes, in the order of execution).
    """
    tensors = Tensors()
    _Graph(graph, units, size, tensors).run()
    return tensors


class _Graph:
    def __init__(self, graph: GraphFacts, units: Mapping[str, Sequence[Unit]], size: SizeOf, tensors: Tensors) -> None:
        self._graph = graph
        self._all = units
        self._units = units[graph.path]
        self._size = size
        self._tensors = tensors
        self._alias: dict[int, Value] = {}
        self._begun: dict[int, tuple[Value, int, str]] = {}
        self._last: dict[int, int] = {}
        self._on_dml = {id(node) for unit in self._units if unit.on_dml for node in unit.nodes}

    def run(self) -> None:
        self._feed()
        for unit in self._units:
            if unit.on_dml:
                self._read(unit)
            step = len(self._tensors.labels)
            self._tensors.labels.append(unit.label)
            self._use(unit, step)
            if unit.on_dml:
                self._make(unit, step)
            for node in unit.nodes:
                for inner in node.subgraphs.values():
                    _Graph(inner, self._all, self._size, self._tensors).run()
                    self._use(unit, len(self._tensors.labels) - 1)
        self._end()

    def _root(self, value: Value) -> Value:
        return self._alias.get(id(value), value)

    def _begin(self, value: Value, step: int, node: str) -> None:
        if id(value) not in self._begun and not value.constant:
            self._begun[id(value)] = (value, step, node)
            self._last[id(value)] = step

    def _feed(self) -> None:
        """Add the model's inputs that DirectML nodes, or nodes with subgraphs, read: they are copied before the run."""
        for value in self._graph.inputs if self._graph.parent is None else ():
            if any(id(node) in self._on_dml or node.subgraphs for node in value.consumers) and not value.initializer:
                self._begin(value, len(self._tensors.labels), "")
                self._tensors.up.append(self._size(value) or 0)

    def _read(self, unit: Unit) -> None:
        """Add the results of CPU nodes that a unit is the first to read on the device."""
        inside = {id(node) for node in unit.nodes}
        for node in unit.nodes:
            for value in unit.read(node):
                if value.graph == self._graph.path and id(value.producer) not in inside:
                    self._begin(self._root(value), len(self._tensors.labels), "")

    def _use(self, unit: Unit, step: int) -> None:
        for node in unit.nodes:
            for value in [*node.inputs, *node.implicit]:
                if value is not None and id(root := self._root(value)) in self._last:
                    self._last[id(root)] = step

    def _make(self, unit: Unit, step: int) -> None:
        inside = {id(node) for node in unit.nodes}

        def is_output(value: Value) -> bool:
            return value.graph_output or any(id(reader) not in inside for reader in value.consumers)

        for node in unit.nodes:
            source = node.input(0)
            for value in node.outputs:
                if value is None or (unit.fused and not is_output(value)):
                    continue
                if not unit.fused and node.key in ALIASES and source is not None and not source.constant:
                    self._alias[id(value)] = self._root(source)
                else:
                    self._begin(value, step, node.label)
        for node in unit.nodes if not unit.fused else ():
            if nbytes := scratch_bytes(node, self._size):
                self._tensors.add(Held(node.label, "scratch", nbytes, node.label), step, step)
        if not unit.fused:
            return
        buffers = inner_buffers(unit.nodes, is_output, self._size)
        nbytes = pooled_bytes(buffers, likeness=LIKENESS, alignment=_ALIGNMENT)
        if nbytes:
            self._tensors.inside[step] = ([node.path for node in unit.nodes], buffers)
            self._tensors.add(Held(unit.label, "fused graph", nbytes, unit.label), step, step)

    def _end(self) -> None:
        """Set the last step of each tensor: the end for inputs and outputs of the graph, the last reader for others."""
        end = max(len(self._tensors.labels) - 1, 0)
        outputs = {id(self._root(value)) for value in self._graph.outputs}
        feeds = {id(value) for value in self._graph.inputs}
        main = self._graph.parent is None
        for key, (value, first, node) in self._begun.items():
            kind: Literal["input", "output", "activation"] = "activation"
            if main and (key in feeds or key in outputs):
                kind = "input" if key in feeds else "output"
            last = end if key in outputs or key in feeds else self._last[key]
            self._tensors.add(Held(value.name, kind, self._size(value) or 0, node), first, last)
        if main:
            results = (value for value in self._graph.outputs if id(self._root(value)) in self._begun)
            self._tensors.down += [self._size(value) or 0 for value in results]


def busiest(tensors: Tensors) -> tuple[str, list[Held]]:
    """Return the label of the step with the most memory in use, and the tensors in memory then.

    In a fused graph, the label is that of its node at the peak, and its own tensors replace its block. Without any
    tensors, the result is ``""`` and an empty list.
    """
    step = live_peak(tensors.buffers).step
    if step < 0:
        return "", []
    pairs = zip(tensors.about, tensors.buffers, strict=True)
    held = [about for about, buffer in pairs if buffer.first <= step <= buffer.last]
    if step not in tensors.inside:
        return tensors.labels[step], held
    labels, buffers = tensors.inside[step]
    inner = live_peak(buffers).step
    inner_tensors = [Held(one.name, "activation", one.nbytes, labels[one.first]) for one in held_at(buffers, inner)]
    return labels[inner], [*(one for one in held if one.kind != "fused graph"), *inner_tensors]
