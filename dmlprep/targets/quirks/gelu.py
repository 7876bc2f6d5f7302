"""What ONNX Runtime's optimizer does to a graph before DirectML sees it, where that costs placement."""

from __future__ import annotations

import math

from dmlprep.targets.facts import GraphFacts, NodeFacts, Value

__all__ = ["GELU_OPSET", "fast_gelu", "gelu_trap", "tanh_gelu", "trapped_gelu"]

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


def fast_gelu(node: NodeFacts) -> str:
    """Matcher of the quirk for the operator itself."""
    data = node.input(0)
    return "FastGelu in FP32" if data is not None and data.type == "float" else ""


def tanh_gelu(node: NodeFacts) -> str:
    """Matcher of the quirk: a Tanh in a GELU by tanh that FastGeluFusion (level 2) makes com.microsoft FastGelu of.

    ``x * 0.5 * (1 + tanh(0.79788 * (x + 0.044715 * x^3)))``, with the cube by Pow or multiplied out around x. Nothing
    is fused where a value of it is a graph output. Source: onnxruntime/core/optimizer/fast_gelu_fusion.cc; both forms
    are measured. FP16 is left out: the fused operator is the more exact one there.
    """
    data = node.input(0)
    if data is None or data.type != "float" or data.producer is None or data.producer.op != "Mul":
        return ""
    add = _only_consumer(node.output())
    if add is None or add.op != "Add" or not _has_scalar(add, 1.0):
        return ""
    last = _only_consumer(add.output())
    result = last.output() if last is not None and last.op == "Mul" else None
    if result is None or result.graph_output:
        return ""
    return "this GELU by tanh becomes FastGelu" if _by_power(data.producer) or _by_products(data.producer) else ""


_INNER, _CUBIC = (2 / math.pi) ** 0.5, 0.044715


def _other(node: NodeFacts, op: str) -> NodeFacts | None:
    """The node of this kind that makes an operand."""
    return next(
        (v.producer for v in node.inputs if v is not None and v.producer is not None and v.producer.op == op), None
    )


def _by_power(scaled: NodeFacts) -> bool:
    """0.79788 * (x + 0.044715 * Pow(x, 3))."""
    total = _other(scaled, "Add")
    cubic = _other(total, "Mul") if total is not None and _has_scalar(scaled, _INNER) else None
    power = _other(cubic, "Pow") if cubic is not None and _has_scalar(cubic, _CUBIC) else None
    return power is not None and _has_scalar(power, 3.0)


def _by_products(product: NodeFacts) -> bool:
    """(0.79788 * x) * (1 + x * (0.044715 * x))."""
    left, right = _other(product, "Mul"), _other(product, "Add")
    if left is None or right is None or not _has_scalar(left, _INNER) or not _has_scalar(right, 1.0):
        return False
    square = _other(right, "Mul")
    inner = _other(square, "Mul") if square is not None else None
    return any(n is not None and _has_scalar(n, _CUBIC) for n in (square, inner))


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
