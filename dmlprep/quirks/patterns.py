"""What the matchers of several quirks look for in a graph."""

from __future__ import annotations

from dmlprep.quirks.quirk import ORT_SOURCE
from dmlprep.targets.facts import NodeFacts, Value

__all__ = ["FUSION_HELPER", "GRAPH_TRANSFORMER", "fused_activation", "only_consumer"]

GRAPH_TRANSFORMER = ORT_SOURCE + "onnxruntime/core/providers/dml/DmlExecutionProvider/src/GraphTransformer.cpp"
FUSION_HELPER = ORT_SOURCE + "onnxruntime/core/providers/dml/DmlExecutionProvider/src/DmlGraphFusionHelper.cpp"

# fmt: off
_ACTIVATIONS = frozenset({
    "Sigmoid", "HardSigmoid", "Tanh", "ScaledTanh", "Relu", "LeakyRelu", "ThresholdedRelu", "Elu", "Selu", "Softsign",
    "Softplus", "ParametricSoftplus",
})
# fmt: on
"""Operators that DirectML's provider fuses into the operator before them (GraphTransformer.cpp), at level EXTENDED."""


def only_consumer(value: Value | None) -> NodeFacts | None:
    """The node that alone reads a value; ``None`` where there are more or none, or where it is a graph output."""
    if value is None or value.graph_output or len(value.consumers) != 1:
        return None
    return value.consumers[0]


def fused_activation(node: NodeFacts) -> NodeFacts | None:
    """The activation that the provider fuses into a node: its output's only reader."""
    out = node.output()
    if out is None or len(out.consumers) != 1:
        return None
    reader = out.consumers[0]
    wanted = {"Relu", "LeakyRelu"} if node.op in ("Add", "Sum") else _ACTIVATIONS
    return reader if not reader.domain and reader.op in wanted and reader.graph == node.graph else None
