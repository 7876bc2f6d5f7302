"""The placement of a model in numbers, for records."""

from __future__ import annotations

import msgspec


class PlacementFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The placement of a model's nodes, in numbers.

    Attributes:
        node_share, flop_share: share of nodes and of operations on DirectML, 0 to 1; ``None`` if unknown.
        crossings, crossing_bytes: tensors that are copied between CPU and GPU in each run, and their bytes if known.
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
