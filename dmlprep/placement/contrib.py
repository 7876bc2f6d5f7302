"""Types and shapes behind com.microsoft operators, where onnx's own inference stops.

Taken from the node-by-node inference, which goes on through them; where that refuses the model, only what follows from
the first input (onnxruntime/core/graph/contrib_ops). The rest stays unknown, which the rules take as "not static".
"""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.analysis.shapes import Inference
from dmlprep.errors import ModelRefused
from dmlprep.targets.building import set_type
from dmlprep.targets.facts import GraphFacts, NodeFacts

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


def infer_contrib(model: ir.Model, graph: GraphFacts) -> None:
    """Fill in what onnx did not infer, in place. A model without such operators costs one look at each node."""
    nodes = (n for inner in graph.all_graphs() for n in inner.nodes)
    stops = any(
        (n.domain == "com.microsoft" or n.since == 1) and any(v is not None and v.shape is None for v in n.outputs)
        for n in nodes
    )
    if stops:
        _fill(model, graph)
    for inner in graph.all_graphs():
        for node in inner.nodes:
            if node.domain == "com.microsoft" or (not node.domain and node.op.endswith("LayerNormalization")):
                _infer(node)


def _fill(model: ir.Model, graph: GraphFacts) -> None:
    try:
        known = Inference.of(model)
    except ModelRefused:  # shapes that contradict each other: the checker's finding says so
        return
    for inner in graph.all_graphs():
        for node in inner.nodes:
            for output, facts in zip(node.ir.outputs, node.outputs, strict=True):
                proto = known.types.get(output)
                if facts is not None and proto is not None and not facts.static:
                    set_type(facts, proto)


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
