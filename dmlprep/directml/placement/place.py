"""Place every node of a model on a target, offline: its device, its role, and the copies between devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import onnx_ir as ir

from dmlprep.directml.placement.placement import Crossing, PlacedNode, Placement
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.targets import Target
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.directml.targets.flops import flops
from dmlprep.directml.targets.fusion import Divisions
from dmlprep.directml.targets.kernels import Kernel
from dmlprep.graph.analysis.operators import CONTROL
from dmlprep.graph.model import Frozen, Model
from dmlprep.graph.model.collector import paused_collector
from dmlprep.graph.model.random_ops import RANDOM
from dmlprep.record.aliases import SessionDevice

_FEW_INPUTS = 8
"""Most inputs of a node in which a value is searched without an index."""

LARGEST = 1 << 48
"""The largest plausible tensor, in bytes: no machine has 256 TiB of memory, and sums of many stay below 64 bits."""


def nbytes(value: Value) -> int | None:
    """Size of a tensor in bytes; ``None`` if its shape or type is unknown, for strings, and above ``LARGEST``."""
    dtype = value.dtype
    if dtype in (None, ir.DataType.UNDEFINED, ir.DataType.STRING) or value.size is None:
        return None
    size = (value.size * dtype.bitwidth + 7) // 8
    return size if size <= LARGEST else None


def crossings(graph: GraphFacts, on_dml: set[int], kernels: dict[int, Kernel]) -> list[Crossing]:
    """The values of all graphs that a node writes on one device and another node reads on the other; each value once.

    Initializers do not count, nor do the copies of the main graph's inputs and outputs from and to the application:
    every placement needs them. An input that both devices read counts: ONNX Runtime passes it to the CPU and copies
    it in each run.

    Args:
        on_dml: ``id`` of each node on DirectML.
        kernels: ``id(node)`` -> the node's DirectML kernel.
    """
    copies: list[Crossing] = []
    readers = _Readers(on_dml, kernels)
    for feed in graph.inputs:
        on_gpu = readers.across(feed, False)
        if not feed.initializer and on_gpu is not None and readers.across(feed, True) is not None:
            copies.append(Crossing(feed.name, "", "dml", "", on_gpu.label, nbytes(feed)))
    for inner in graph.all_graphs():
        for node in inner.nodes:
            kernel = kernels.get(id(node)) if id(node) in on_dml else None
            for index, value in enumerate(node.outputs):
                made_on_dml = kernel is not None and index not in kernel.cpu_out
                if value is not None and (reader := readers.across(value, made_on_dml)) is not None:
                    to: SessionDevice = "cpu" if made_on_dml else "dml"
                    copies.append(Crossing(value.name, inner.path, to, node.label, reader.label, nbytes(value)))
    return copies


def crossings_after(graph: GraphFacts, target: Target) -> Callable[[Iterable[NodeFacts]], list[Crossing]]:
    """Return a function of nodes on the CPU: the crossings as they would be if DirectML ran these nodes, too."""
    divisions = [Divisions(target).of(inner) for inner in graph.all_graphs()]
    on_dml = {key for one in divisions for key, answer in one.answers.items() if answer.provider == "dml"}
    kernels = {key: kernel for one in divisions for key, kernel in one.kernels.items()}

    def after(moved: Iterable[NodeFacts]) -> list[Crossing]:
        more = {id(node): Kernel(node.since, {}) for node in moved}
        return crossings(graph, on_dml | more.keys(), kernels | more)

    return after


class _Readers:
    """Finds the readers of a value on the other device; it indexes the inputs of a node with many only once."""

    def __init__(self, on_dml: set[int], kernels: dict[int, Kernel]) -> None:
        self._on_dml = on_dml
        self._kernels = kernels
        self._places: dict[int, dict[int, list[int]]] = {}

    def across(self, value: Value, made_on_dml: bool) -> NodeFacts | None:
        """The first node that reads a value on the other device; ``None`` if there is none.

        Args:
            made_on_dml: True if the value is written in DirectML's memory, False if in the CPU's.
        """
        return next((reader for reader in value.consumers if self._crosses(reader, value, made_on_dml)), None)

    def _crosses(self, reader: NodeFacts, value: Value, made_on_dml: bool) -> bool:
        if len(reader.inputs) <= _FEW_INPUTS:
            at = [index for index, read in enumerate(reader.inputs) if read is value]
        else:
            if id(reader) not in self._places:
                places = self._places[id(reader)] = dict[int, list[int]]()
                for index, read in enumerate(reader.inputs):
                    places.setdefault(id(read), []).append(index)
            at = self._places[id(reader)].get(id(value), [])
        if id(reader) not in self._on_dml:
            return bool(at) and made_on_dml  # no place: a node of its subgraph reads the value, and counts itself
        return any((i in self._kernels[id(reader)].cpu_in) == made_on_dml for i in at)


def feed_bytes(graph: GraphFacts) -> int | None:
    """Total size in bytes of the main graph's inputs and outputs, without initializers; ``None`` if one is unknown."""
    sizes = [nbytes(v) for v in [*graph.inputs, *graph.outputs] if not v.initializer]
    known = [s for s in sizes if s is not None]
    return sum(known) if len(known) == len(sizes) else None


Role = Literal["compute", "shape", "control", "constant"]

SHAPE_VALUE = 1024
"""The most elements of a value that counts as shape arithmetic; a larger value derived from shapes counts as data."""

_WHOLE_NUMBERS = frozenset(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"])


def roles(graph: GraphFacts) -> dict[int, Role]:
    """``id(node)`` -> role (see ``PlacedNode.role``), for every node of the graph and its subgraphs."""
    by_node: dict[int, Role] = {}
    constant: set[int] = set()
    of_shape: set[int] = set()
    for node in graph.all_nodes():
        by_node[id(node)] = role = _role(node, constant, of_shape)
        if role in ("constant", "shape"):
            (constant if role == "constant" else of_shape).update(map(id, filter(None, node.outputs)))
    return by_node


def _role(node: NodeFacts, constant: set[int], of_shape: set[int]) -> Role:
    if node.op in ("Shape", "Size"):
        return "shape"
    inputs = [v for v in node.inputs if v is not None]

    def fixed(value: Value) -> bool:
        return value.constant or id(value) in constant

    if not node.subgraphs and node.op not in RANDOM and all(fixed(v) for v in inputs):
        return "constant"
    if node.op in CONTROL:
        return "control"
    if not any(id(v) in of_shape for v in inputs) or not all(fixed(v) or id(v) in of_shape for v in inputs):
        return "compute"
    is_small = all(
        v is None or (v.type in _WHOLE_NUMBERS and (v.size or 0) <= SHAPE_VALUE) or (v.size or 2) <= 1
        for v in node.outputs
    )
    return "shape" if is_small else "compute"


def place(model: Model, target: Target, frozen: Frozen | None = None) -> Placement:
    """Return the provider of each node of ``model`` on ``target``, and the reason. Reads no weights.

    Raises:
        UsageError: the target's kernels are not known.
        ModelRefused, ToolFailed: as ``read_facts``.
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
    """Return the placement of a graph that was already read with this target's tables.

    Args:
        opset: the model's opset, for the result.
        kind: the roles of the nodes, from ``roles(graph)``; computed if ``None``.
        divisions: the provider and fused graph of each node, if computed before.
    """
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
                    source=node.source,
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
    places: dict[str, list[str]] = {}
    for value in graph.inputs:
        for axis, size in enumerate(value.shape or ()):
            if not isinstance(size, int) and not value.initializer:
                places.setdefault(size or f"{value.name}[{axis}]", []).append(f"{value.name}[{axis}]")
    return places
