"""The result of placement: the device of each node of a model, and the costs."""

from __future__ import annotations

from typing import Literal

import msgspec

from dmlprep.portable.shares import rounded_share
from dmlprep.record.aliases import SessionDevice
from dmlprep.record.placement import PlacementFacts
from dmlprep.record.source import Source

FORMAT = 1
"""Version of the JSON form. It increases when a field changes its meaning or is removed."""

ProviderName = Literal["DmlExecutionProvider", "CPUExecutionProvider"]


class PlacedNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node as ONNX Runtime places it.

    Attributes:
        name: the node's name; without one, the operator and, in parentheses, the first output.
        graph: path of its graph: ``""`` the main graph, ``If_3/then_branch`` a subgraph.
        op: the operator: ``Conv``, ``com.microsoft::Gelu``.
        provider: the provider that runs it. Also the CPU if no provider has a kernel (``DP507``): ONNX Runtime leaves
            the node there, and fails.
        code: code of the reason for its placement (``DP500``: DirectML runs it; ``dmlprep explain CODE``).
        reason: the reason for its placement as one clause, with this node's versions or types; empty for ``DP500``.
        partition: number of the fused graph that it is in, counted in its own graph; ``None`` if it is not fused.
        not_fused: code of the reason why a node on DirectML is not in a fused graph; empty if there is no reason.
        not_fused_reason: the same reason as one clause, with this node's values.
        role: ``compute``; ``shape`` arithmetic; ``control`` flow and containers; ``constant``: folded at load.
        origin: the node that it was inlined from; empty for a node of the model itself.
        flops: floating-point operations; ``None`` if its shapes are unknown.
        source: module and source line that it was exported from; ``None`` if unknown.
    """

    name: str
    graph: str
    op: str
    since_version: int
    provider: ProviderName
    code: str
    reason: str = ""
    partition: int | None = None
    not_fused: str = ""
    not_fused_reason: str = ""
    role: Literal["compute", "shape", "control", "constant"] = "compute"
    origin: str = ""
    flops: int | None = None
    source: Source | None = None


class Crossing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tensor that is written on one device and read on the other in each run.

    ``to`` is the device that reads it. ``producer`` and ``consumer`` are labels of nodes; ``producer`` is empty for a
    graph input that both devices read. ``nbytes`` is the size in bytes, ``None`` if unknown.
    """

    value: str
    graph: str
    to: SessionDevice
    producer: str
    consumer: str
    nbytes: int | None = None


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """The placement of every node of every graph on one target, without graph optimisation.

    Attributes:
        nodes: all nodes except Constant nodes: ONNX Runtime turns those into initializers.
        dml_flops: floating-point operations on DirectML, for nodes with known shapes.
        flops: floating-point operations of all nodes with known shapes.
        partitions: number of fused graphs in all graphs of the model.
        crossings: the tensors that are copied between the CPU and DirectML in each run.
        crossing_bytes: total size in bytes of the crossings with a known size.
        feed_bytes: total size in bytes of the graph's inputs and outputs, which are copied to and from the device;
            ``None`` if unknown.
        compute_on_cpu: names of compute nodes on the CPU. Shape arithmetic, control flow and nodes that are folded at
            load do not count.
        free_dimensions: dim_param (or ``input[axis]`` without a name) -> the places that have it, as ``input[axis]``.
    """

    target: str
    opset: int
    nodes: list[PlacedNode]
    dml_nodes: int
    flops: int
    dml_flops: int
    partitions: int
    crossings: list[Crossing]
    crossing_bytes: int
    feed_bytes: int | None
    compute_on_cpu: list[str]
    free_dimensions: dict[str, list[str]] = {}
    format: int = FORMAT

    @property
    def node_share(self) -> float:
        """Share of nodes on DirectML, 0 to 1; 1 for a model without nodes."""
        return self.dml_nodes / len(self.nodes) if self.nodes else 1.0

    @property
    def flop_share(self) -> float | None:
        """Share of floating-point operations on DirectML, 0 to 1.

        ``None`` if the shapes of a compute node are unknown, or if the model has no floating-point operations.
        """
        known = all(n.flops is not None for n in self.nodes if n.role == "compute")
        return self.dml_flops / self.flops if self.flops and known else None

    @property
    def runs(self) -> bool:
        """Return whether every node has a kernel on DirectML or the CPU; without one, no session can be created."""
        return all(n.code != "DP507" for n in self.nodes)

    def summary(self) -> PlacementFacts:
        """The numbers of the placement in the form for a run record, with at most 50 names of compute nodes."""
        return PlacementFacts(
            target=self.target,
            opset=self.opset,
            nodes=len(self.nodes),
            dml_nodes=self.dml_nodes,
            node_share=rounded_share(self.node_share),
            flop_share=None if self.flop_share is None else rounded_share(self.flop_share),
            fused_nodes=sum(n.partition is not None for n in self.nodes),
            partitions=self.partitions,
            crossings=len(self.crossings),
            crossing_bytes=self.crossing_bytes,
            compute_on_cpu=self.compute_on_cpu[:50],
            compute_nodes_on_cpu=len(self.compute_on_cpu),
        )
