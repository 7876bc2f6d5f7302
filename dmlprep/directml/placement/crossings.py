"""Tensors that are made on one device and read on the other."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.placement.placement import Crossing
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.directml.targets.kernels import Kernel
from dmlprep.record.aliases import SessionDevice

LARGEST = 1 << 48
"""Bytes of a tensor that is believed: no machine holds 256 TiB, and sums of many stay below 64 bits."""


def nbytes(value: Value) -> int | None:
    """Bytes of a tensor, ``None`` where its size or type is not known, or is beyond any machine."""
    dtype = value.dtype
    if dtype in (None, ir.DataType.UNDEFINED, ir.DataType.STRING) or value.size is None:
        return None
    found = (value.size * dtype.bitwidth + 7) // 8
    return found if found <= LARGEST else None


def crossings(graph: GraphFacts, on_dml: set[int], kernels: dict[int, Kernel]) -> list[Crossing]:
    """Every value of every graph that a node makes on one device and another node reads on the other.

    Feeds and results of the main graph, and initializers, are not counted: they move whatever the placement is. A feed
    that both devices read is: ONNX Runtime hands it to the CPU and copies it in each run.
    """
    found: list[Crossing] = []
    readers = _Readers(on_dml, kernels)
    for feed in graph.inputs:
        on_gpu = readers.across(feed, False)
        if on_gpu is not None and readers.across(feed, True) is not None:
            found.append(Crossing(feed.name, "", "dml", "", on_gpu.label, nbytes(feed)))
    for inner in graph.all_graphs():
        for node in inner.nodes:
            kernel = kernels.get(id(node)) if id(node) in on_dml else None
            for index, value in enumerate(node.outputs):
                made_on_dml = kernel is not None and index not in kernel.cpu_out
                if value is not None and (reader := readers.across(value, made_on_dml)) is not None:
                    to: SessionDevice = "cpu" if made_on_dml else "dml"
                    found.append(Crossing(value.name, inner.path, to, node.label, reader.label, nbytes(value)))
    return found


class _Readers:
    """On which device nodes read values; the inputs of each node are indexed once, however many they are."""

    def __init__(self, on_dml: set[int], kernels: dict[int, Kernel]) -> None:
        self._on_dml = on_dml
        self._kernels = kernels
        self._places: dict[int, dict[int, list[int]]] = {}

    def across(self, value: Value, made_on_dml: bool) -> NodeFacts | None:
        """The first node that reads a value on the other device than the one that makes it."""
        return next((reader for reader in value.consumers if self._crosses(reader, value, made_on_dml)), None)

    def _crosses(self, reader: NodeFacts, value: Value, made_on_dml: bool) -> bool:
        if id(reader) not in self._places:
            places = self._places[id(reader)] = dict[int, list[int]]()
            for index, read in enumerate(reader.inputs):
                places.setdefault(id(read), []).append(index)
        at = self._places[id(reader)].get(id(value), [])
        if id(reader) not in self._on_dml:
            return bool(at) and made_on_dml  # no place: a node of its subgraph reads the value, and counts itself
        return any((i in self._kernels[id(reader)].cpu_in) == made_on_dml for i in at)


def feed_bytes(graph: GraphFacts) -> int | None:
    """Bytes of the main graph's inputs and outputs, ``None`` where one is not known."""
    sizes = [nbytes(v) for v in [*graph.inputs, *graph.outputs] if not v.initializer]
    known = [s for s in sizes if s is not None]
    return sum(known) if len(known) == len(sizes) else None
