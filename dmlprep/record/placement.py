"""The placement of a model (which nodes run on DirectML) in numbers, for records."""

from __future__ import annotations

import msgspec


class PlacementFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of nodes of a model that run on DirectML and on the CPU, and the copies between them.

    Attributes:
        node_share, flop_share: share of nodes and of operations on DirectML, 0 to 1; ``flop_share`` is ``None`` if
            unknown.
        fused_nodes, partitions: number of nodes in fused graphs, and of fused graphs.
        crossings, crossing_bytes: number of tensors that are copied between CPU and GPU in each run, and their size in
            bytes, without tensors of unknown size.
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
