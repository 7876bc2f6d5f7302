"""Tensors that are made on one device and read on the other."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from dmlprep.directml.placement.placement import Crossing
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.directml.targets.kernels import Kernel

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
    places = _Places()
    for feed in graph.inputs:
        on_gpu = [c for c in feed.consumers if _crosses(c, places.of(c, feed), False, on_dml, kernels)]
        if on_gpu and any(_crosses(c, places.of(c, feed), True, on_dml, kernels) for c in feed.consumers):
            found.append(Crossing(feed.name, "", "dml", "", on_gpu[0].label, nbytes(feed)))
    for inner in graph.all_graphs():
        for node in inner.nodes:
            kernel = kernels.get(id(node)) if id(node) in on_dml else None
            for index, value in enumerate(node.outputs):
                if value is None:
                    continue
                made_on_dml = kernel is not None and index not in kernel.cpu_out
                crossing = (
                    c for c in value.consumers if _crosses(c, places.of(c, value), made_on_dml, on_dml, kernels)
                )
                reader = next(crossing, None)
                if reader is not None:
                    found.append(
                        Crossing(
                            value.name,
                            inner.path,
                            "cpu" if made_on_dml else "dml",
                            node.label,
                            reader.label,
                            nbytes(value),
                        )
                    )
    return found


class _Places:
    """At which inputs nodes read a value; each node's inputs are looked at once, however many they are."""

    def __init__(self) -> None:
        self._known: dict[int, dict[int, list[int]]] = {}

    def of(self, reader: NodeFacts, value: Value) -> list[int]:
        if id(reader) not in self._known:
            found = self._known[id(reader)] = dict[int, list[int]]()
            for index, read in enumerate(reader.inputs):
                found.setdefault(id(read), []).append(index)
        return self._known[id(reader)].get(id(value), [])


def _crosses(
    reader: NodeFacts, places: Sequence[int], made_on_dml: bool, on_dml: set[int], kernels: dict[int, Kernel]
) -> bool:
    if not places:
        return False  # read inside its subgraph: the reader there counts
    if id(reader) not in on_dml:
        return made_on_dml
    kernel = kernels[id(reader)]
    return any((i in kernel.cpu_in) == made_on_dml for i in places)


def feed_bytes(graph: GraphFacts) -> int | None:
    """Bytes of the main graph's inputs and outputs, ``None`` where one is not known."""
    sizes = [nbytes(v) for v in [*graph.inputs, *graph.outputs] if not v.initializer]
    known = [s for s in sizes if s is not None]
    return sum(known) if len(known) == len(sizes) else None
