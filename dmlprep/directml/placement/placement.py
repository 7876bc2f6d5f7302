"""The answer: where each node of a model runs, and what that costs."""

from __future__ import annotations

from typing import Literal

import msgspec

from dmlprep.portable.shares import rounded_share
from dmlprep.record.aliases import SessionDevice
from dmlprep.record.placement import PlacementFacts

FORMAT = 1
"""Version of the JSON form. Raised when a field changes its meaning or goes away."""

ProviderName = Literal["DmlExecutionProvider", "CPUExecutionProvider"]


class PlacedNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """One node as ONNX Runtime places it.

    Attributes:
        name: the node's name; operator and first output in parentheses where it has none.
        graph: path of its graph: ``""`` the main graph, ``If_3/then_branch`` a subgraph.
        op: ``Conv``, ``com.microsoft::Gelu``.
        provider: the CPU also where no provider has a kernel (``DP507``): ONNX Runtime leaves it there, and fails.
        code: why it runs where it runs (``DP500``: DirectML takes it; ``dmlprep explain CODE``).
        reason: one clause with this node's numbers.
        partition: number of its fused partition in its graph, ``None`` where it is not fused.
        not_fused: code of what keeps a node on DirectML out of a fused graph.
        not_fused_reason: one clause with this node's numbers.
        role: ``compute``; ``shape`` arithmetic; ``control`` flow and containers; ``constant``: folded at load.
        origin: node that it was inlined from; empty where the model itself has it.
        flops: floating-point operations, ``None`` where its shapes are not known.
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


class Crossing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tensor that is made on one device and read on the other in each run.

    ``producer`` is empty for a graph input that both devices read; ``nbytes`` is ``None`` if it is not known.
    """

    value: str
    graph: str
    to: SessionDevice
    producer: str
    consumer: str
    nbytes: int | None = None


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where every node of every graph runs on one target, without graph optimisation.

    Attributes:
        nodes: Constant nodes left out: ONNX Runtime turns them into initializers.
        dml_flops: floating-point operations on DirectML, of nodes whose shapes are known.
        flops: of all nodes whose shapes are known.
        partitions: fused graphs, of all graphs of the model.
        crossing_bytes: of those whose size is known.
        feed_bytes: bytes of the graph's inputs and outputs that go up and come down, where known.
        compute_on_cpu: names of compute nodes on the CPU; shape arithmetic, control flow and what is folded at load do
            not count.
        free_dimensions: dim_param (or ``input[axis]`` where it has no name) -> the inputs that have it.
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
        """Share of floating-point operations on DirectML, ``None`` where the shapes of a compute node are not known.

        A share of those that are known would say more of which they are than of where they run.
        """
        known = all(n.flops is not None for n in self.nodes if n.role == "compute")
        return self.dml_flops / self.flops if self.flops and known else None

    @property
    def runs(self) -> bool:
        """Whether every node has a kernel somewhere, so that a session can be made."""
        return all(n.code != "DP507" for n in self.nodes)

    def summary(self) -> PlacementFacts:
        """The numbers for a record."""
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
