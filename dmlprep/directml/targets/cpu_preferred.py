"""Shape arithmetic that ONNX Runtime keeps on the CPU although DirectML has kernels for it.

Source: onnxruntime/core/framework/fallback_cpu_capability.cc (GetCpuPreferredNodes). The search starts at the readers
of tensors that kernels leave in CPU memory (Shape, Size) and runs in topological order.
"""

from __future__ import annotations

from collections.abc import Iterable

from dmlprep.directml.targets.facts import GraphFacts, Value
from dmlprep.directml.targets.kernels import Kernel

SMALL_INITIALIZER = 100
"""Elements; kSmallInitializerThreshold in fallback_cpu_capability.cc."""

_STOPS_SEARCH = frozenset(
    ["float16", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float4e2m1"]
)


def cpu_preferred(graph: GraphFacts, kernels: dict[int, Kernel]) -> set[int]:
    """``id`` of each node of this graph (not of its subgraphs) that stays on the CPU.

    Args:
        kernels: ``id(node)`` -> the DirectML kernel that its version and types match, whatever its support query says.
    """
    candidates: set[int] = set()
    on_cpu: set[int] = set()  # id of values
    preferred: set[int] = set()

    def extend(values: Iterable[Value | None]) -> None:
        for value in values:
            if value is not None:
                on_cpu.add(id(value))
                candidates.update(id(c) for c in value.consumers)

    for node in graph.nodes:
        kernel = kernels.get(id(node))
        if kernel is not None:
            extend(node.output(index) for index in kernel.cpu_out)
    # Topological order: whatever makes a node a candidate stands before it.
    for node in graph.nodes:
        if id(node) not in candidates:
            continue
        kernel = kernels.get(id(node))
        if kernel is None:
            extend(node.outputs)
        elif all(_from_cpu(graph, value, index, kernel, on_cpu) for index, value in enumerate(node.inputs)):
            preferred.add(id(node))
            extend(node.outputs)
    return preferred


def _from_cpu(graph: GraphFacts, value: Value | None, index: int, kernel: Kernel, on_cpu: set[int]) -> bool:
    """Whether an input lets its node stay on the CPU."""
    if value is None or value.type in _STOPS_SEARCH:
        return False
    if value.initializer and (value.size or 0) <= SMALL_INITIALIZER and value.size is not None:
        return True
    if value.graph_input and value.graph == graph.path:
        return True
    # A tensor that the DirectML kernel reads on the CPU anyway is no reason to leave DirectML.
    return id(value) in on_cpu and index not in kernel.cpu_in
