"""What ONNX Runtime's optimizer does to a graph before DirectML sees it, where that costs placement."""

from __future__ import annotations

from dmlprep.target.facts import GraphFacts, NodeFacts, Value

__all__ = ["GELU_OPSET", "gelu_trap", "trapped_gelu"]

GELU_OPSET = 20
"""From this opset on GeluFusion (level 1, ONNX Runtime 1.20 and later) makes ai.onnx Gelu of a decomposed one."""


def _only_consumer(value: Value | None) -> NodeFacts | None:
    if value is None or value.graph_output or len(value.consumers) != 1:
        return None
    return value.consumers[0]


def _scalar(value: Value | None) -> float | None:
    if value is None or value.size != 1:
        return None
    array = value.array()
    return None if array is None or array.dtype.kind != "f" else float(array.reshape(-1)[0])


def _has_scalar(node: NodeFacts, wanted: float) -> bool:
    return any((s := _scalar(v)) is not None and abs(s - wanted) < 1e-3 for v in node.inputs)


def gelu_trap(graph: GraphFacts) -> list[NodeFacts]:
    """The Erf nodes of decomposed GELUs in FP32: ``x * 0.5 * (1 + erf(x / sqrt(2)))`` in either order of factors.

    Source: onnxruntime/core/optimizer/gelu_fusion.cc. FP16 is left out: fused, it is inlined again, as the CPU has no
    FP16 kernel either.
    """
    found: list[NodeFacts] = []
    for inner in graph.all_graphs():
        for node in inner.nodes:
            if node.op == "Erf" and _is_gelu(node):
                found.append(node)
    return found


def trapped_gelu(node: NodeFacts) -> str:
    """Matcher of the quirk: what of an Erf node is concerned, ``""`` where it is not."""
    if node.opset < GELU_OPSET or not _is_gelu(node):
        return ""
    return "this GELU becomes ai.onnx Gelu-20"


def _is_gelu(erf: NodeFacts) -> bool:
    data = erf.input(0)
    if data is None or data.type != "float" or data.producer is None:
        return False
    before = data.producer
    if not (
        (before.op == "Div" and _has_scalar(before, 2**0.5)) or (before.op == "Mul" and _has_scalar(before, 0.5**0.5))
    ):
        return False
    add = _only_consumer(erf.output())
    if add is None or add.op != "Add" or not _has_scalar(add, 1.0):
        return False
    mul = _only_consumer(add.output())
    if mul is None or mul.op != "Mul":
        return False
    if _has_scalar(mul, 0.5):
        return True  # 0.5 * (1 + erf) first, then x
    other = next((v for v in mul.inputs if v is not None and v is not add.output()), None)
    scaled = other.producer if other is not None else None
    if scaled is not None and scaled.op == "Mul" and _has_scalar(scaled, 0.5):
        return True
    last = _only_consumer(mul.output())
    return last is not None and last.op == "Mul" and _has_scalar(last, 0.5)
