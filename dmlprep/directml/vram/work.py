"""The work of a run on DirectML: floating-point operations, and bytes that must move from and to the device's memory.

Both are the least that any implementation needs. A fused graph reads its inputs and weights once, and writes its
results once. Nodes outside of fused graphs count together like one fused graph, because ONNX Runtime fuses some of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmlprep.directml.placement.place import nbytes
from dmlprep.directml.placement.placement import PlacedNode
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.directml.targets.flops import flops, has_buffer
from dmlprep.directml.targets.kernels import Tables
from dmlprep.directml.vram.running import ALIASES
from dmlprep.directml.vram.units import Unit, units_of

_SELECTING = (
    *("Gather", "GatherElements", "GatherND", "GridSample", "Slice", "Crop", "CenterCropPad", "Resize", "Upsample"),
    "EmbedLayerNormalization",
)
"""Operators that may read no more of an input than the size of their output: a few rows of a table of embeddings."""

_MAY_READ_LESS = ("Compress", "GatherBlockQuantized", "MaxUnpool", "NonZero", "RoiAlign", "Unique", "NonMaxSuppression")
"""Operators whose inputs do not count, because they may read even less than that."""


@dataclass(frozen=True)
class Work:
    """The work of one fused graph, or of all nodes outside of fused graphs.

    Attributes:
        label: path of its first node.
        nodes: number of its nodes.
        fused: whether it is a fused graph.
        half, single: floating-point operations in FP16, and in FP32 or FP64. Integer arithmetic does not count.
        nbytes: bytes that it reads and writes.
        unknown: number of nodes with an unknown shape, whose work is missing in these numbers.
    """

    label: str
    nodes: int
    fused: bool
    half: int
    single: int
    nbytes: int
    unknown: int = 0


def work_of(graph: GraphFacts, placed: Sequence[PlacedNode], tables: Tables) -> list[Work]:
    """Return the work of the main graph on DirectML: one entry for each fused graph, and one for all other nodes.

    Entries whose nodes are all constant or only rename memory are left out. So are subgraphs (If, Loop), because the
    model does not show how often they run.

    Args:
        graph: the main graph, with the sizes of a run.
        placed: the placement of its nodes, in the same order. It may come from the same graph with free sizes.

    Raises:
        ValueError: the placement has another number of nodes.
    """
    idle = {id(node) for node, row in zip(graph.nodes, placed, strict=True) if row.role == "constant"}
    units, others = [], Unit(on_dml=True)
    for unit in units_of(graph, placed, tables):
        if unit.fused:
            units.append(unit)
        elif unit.on_dml:
            others.nodes += unit.nodes
            others.on_cpu |= unit.on_cpu
    works = (_work(unit, [node for node in unit.nodes if id(node) not in idle]) for unit in (*units, others))
    return [work for work in works if work is not None]


def _work(unit: Unit, nodes: Sequence[NodeFacts]) -> Work | None:
    """Return the work of the nodes of a unit that run; ``None`` if none does, or if they only rename memory."""
    if all(node.op in ALIASES for node in nodes):
        return None
    half = single = unknown = 0
    inside = set(map(id, nodes))
    results = {id(value) for node in nodes for value in node.outputs if value is not None}
    moved: dict[int, int] = {}
    for node in nodes:
        operations = flops(node)
        kind = next((value.type for value in node.inputs if value is not None), "")
        half += (operations or 0) if kind == "float16" else 0
        single += (operations or 0) if kind in ("float", "double") else 0
        read = [value for value in unit.read(node) if id(value) not in results]
        results_of = node.outputs[:1] if has_buffer(node) else node.outputs
        written = [value for value in results_of if value is not None and _leaves(value, inside)]
        sizes = [*(_read_bytes(node, value) for value in read), *map(nbytes, written)]
        for value, size in zip([*read, *written], sizes, strict=True):
            moved[id(value)] = max(moved.get(id(value), 0), size or 0)
        unknown += operations is None or None in sizes
    return Work(unit.label, len(nodes), unit.fused, half, single, sum(moved.values()), unknown)


def _leaves(value: Value, inside: set[int]) -> bool:
    """Return whether a result is read outside of its unit."""
    return value.graph_output or any(id(node) not in inside for node in value.consumers)


def _read_bytes(node: NodeFacts, value: Value) -> int | None:
    if node.op in _MAY_READ_LESS or (has_buffer(node) and value in node.inputs[3:]):
        return 0
    size, out = nbytes(value), node.output()
    if node.op not in _SELECTING or out is None:
        return size
    most = nbytes(out)
    return None if size is None or most is None else min(size, most)
