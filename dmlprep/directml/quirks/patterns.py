"""Patterns that the matchers of several quirks search for in a graph."""

from __future__ import annotations

from dmlprep.directml.quirks.quirk import DML_PROVIDER
from dmlprep.directml.targets.facts import NodeFacts, Value

GRAPH_TRANSFORMER = f"{DML_PROVIDER}GraphTransformer.cpp"
FUSION_HELPER = f"{DML_PROVIDER}DmlGraphFusionHelper.cpp"

# fmt: off
_ACTIVATIONS = frozenset({
    "Sigmoid", "HardSigmoid", "Tanh", "ScaledTanh", "Relu", "LeakyRelu", "ThresholdedRelu", "Elu", "Selu", "Softsign",
    "Softplus", "ParametricSoftplus",
})
# fmt: on
"""Operators that DirectML's provider fuses into the operator before them (GraphTransformer.cpp), at level EXTENDED."""


def scalar(value: Value | None) -> float | None:
    """The number in a floating-point constant of one element; ``None`` for any other value."""
    array = value.array() if value is not None and value.size == 1 else None
    return None if array is None or array.dtype.kind != "f" else float(array.reshape(-1)[0])


def only_consumer(value: Value | None) -> NodeFacts | None:
    """The only reader of a value; ``None`` if there are more or no readers, or if it is a graph output."""
    return value.consumers[0] if value is not None and not value.graph_output and len(value.consumers) == 1 else None


def fused_activation(node: NodeFacts) -> NodeFacts | None:
    """The activation that the provider fuses into a node: the only reader of its first output; ``None`` otherwise.

    The first output may also be a graph output. After Add and Sum, only Relu and LeakyRelu count.
    """
    out = node.output()
    if out is None or len(out.consumers) != 1:
        return None
    reader = out.consumers[0]
    wanted = {"Relu", "LeakyRelu"} if node.op in ("Add", "Sum") else _ACTIVATIONS
    return reader if not reader.domain and reader.op in wanted and reader.graph == node.graph else None


def without_identities(value: Value | None) -> Value | None:
    """The value before Identity nodes, which ONNX Runtime removes; the value itself if there are none.

    ``None`` for ``None``, and if the first Identity has no input.
    """
    while value is not None and value.producer is not None and value.producer.key == "Identity":
        value = value.producer.input(0)
    return value


def does_nothing(node: NodeFacts) -> bool:
    """Return whether the node is an Identity, Dropout or Cast to its own type, which ONNX Runtime removes at load."""
    source, out = node.input(0), node.output()
    same_type = source is not None and out is not None and source.type == out.type
    return node.key in ("Identity", "Dropout") or (node.key == "Cast" and same_type)


def readers(value: Value) -> list[NodeFacts]:
    """The readers of a value after ONNX Runtime has removed the nodes that do nothing."""
    nodes: list[NodeFacts] = []
    stack = list(value.consumers)
    while stack:
        reader = stack.pop()
        if does_nothing(reader):
            stack += [n for v in reader.outputs if v is not None for n in v.consumers]
        else:
            nodes.append(reader)
    return nodes
