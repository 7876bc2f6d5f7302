"""Types and shapes of com.microsoft operators, for which onnx has no inference.

Only what follows from the first input (onnxruntime/core/graph/contrib_ops/*_defs.cc); what depends on more stays
unknown, which the rules take as "not static".
"""

from __future__ import annotations

from dmlprep.target.facts import GraphFacts, NodeFacts

__all__ = ["infer_contrib"]

_LIKE_FIRST = frozenset(
    [
        "Gelu",
        "FastGelu",
        "BiasGelu",
        "QuickGelu",
        "BiasAdd",
        "GroupNorm",
        "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
        "RotaryEmbedding",
        "QLinearSigmoid",
        "QLinearLeakyRelu",
        "BiasSoftmax",
        "SimplifiedLayerNormalization",
        "LayerNormalization",
        "Trilu",
        "Inverse",
    ]
)
_TYPE_OF: dict[str, int] = {"DequantizeLinear": 1, "QuantizeLinear": 2, "EmbedLayerNormalization": 2, "QAttention": 2}


def infer_contrib(graph: GraphFacts) -> None:
    """Fill in what is missing, in place."""
    for inner in graph.all_graphs():
        for node in inner.nodes:
            if node.domain == "com.microsoft" or (not node.domain and node.op.endswith("LayerNormalization")):
                _infer(node)


def _infer(node: NodeFacts) -> None:
    first, out = node.input(0), node.output()
    if first is None or out is None:
        return
    source = node.input(_TYPE_OF.get(node.op, 0))
    if not out.type:
        if node.op in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul"):
            out.type = "float"
        elif source is not None:
            out.type = source.type
    if out.shape is None and (node.op in _LIKE_FIRST or node.op in ("DequantizeLinear", "QuantizeLinear")):
        out.shape = first.shape
    for extra in node.outputs[1:]:
        if extra is not None and not extra.type and node.op.startswith("Skip"):
            extra.type = first.type
    last = node.output(3)
    if last is not None and last.shape is None and node.op.startswith("Skip"):
        last.shape = first.shape
