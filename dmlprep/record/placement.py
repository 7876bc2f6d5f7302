"""Where the nodes of a model go, in numbers."""

from __future__ import annotations

import msgspec


class PlacementFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Where the nodes of a model go, in numbers.

    Attributes:
        node_share, flop_share: share of nodes and of operations on DirectML, 0 to 1; ``None`` if unknown.
        fused_nodes: nodes in fused partitions.
        crossings: tensors that are copied between CPU and GPU in each run.
        crossing_bytes: their size, as far as it is known.
        compute_on_cpu: the first 50 of the ``compute_nodes_on_cpu`` compute nodes on the CPU.
    """

    target: str = ""
    opset: int = 0
    nodes: int
    dml_nodes: int = 0
    node_share: float = 0.0
    flop_share: float | None = None
    fused_nodes: int = 0
    partitions: int = 0
    crossings: int
    crossing_bytes: int = 0
    compute_on_cpu: list[str] = []
    compute_nodes_on_cpu: int = 0
