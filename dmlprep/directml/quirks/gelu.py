"""GELUs that ONNX Runtime's optimizer replaces by another operator, and FastGelu itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.declaring import MEASURED, Edit, GraphFacts, NodeFacts, Quirk
from dmlprep.directml.quirks.patterns import only_consumer, scalar

GELU_OPSET = 20
"""From this opset on GeluFusion (level 1, ONNX Runtime 1.20 and later) fuses a decomposed GELU into ai.onnx Gelu."""

_INNER, _CUBIC = (2 / math.pi) ** 0.5, 0.044715


def gelu_trap(graph: GraphFacts) -> list[NodeFacts]:
    """The Erf nodes of decomposed GELUs in FP32: ``x * 0.5 * (1 + erf(x / sqrt(2)))`` in either order of factors.

    Source: onnxruntime/core/optimizer/gelu_fusion.cc. FP16 is excluded: the fused node is inlined again, because the
    CPU has no FP16 kernel either.
    """
    return [node for node in graph.all_nodes() if node.op == "Erf" and _is_gelu(node)]


def _is_fast_gelu(node: NodeFacts) -> str:
    data = node.input(0)
    return "FastGelu in FP32" if data is not None and data.type == "float" else ""


def _by_tanh(node: NodeFacts) -> str:
    """The reason, if the node is the Tanh of a GELU that FastGeluFusion (level 2) fuses into FastGelu; empty otherwise.

    ``x * 0.5 * (1 + tanh(0.79788 * (x + 0.044715 * x^3)))``, with the cube by Pow or multiplied out around x. ONNX
    Runtime does not fuse nodes if one of their values is a graph output. Source:
    onnxruntime/core/optimizer/fast_gelu_fusion.cc; both forms are measured. FP16 is excluded: the fused operator is
    more exact there.
    """
    data = node.input(0)
    if data is None or data.type != "float" or data.producer is None or data.producer.op != "Mul":
        return ""
    last = _product_with_one_more(node)
    result = last.output() if last is not None else None
    if result is None or result.graph_output:
        return ""
    return (
        "ONNX Runtime fuses this GELU by tanh into FastGelu"
        if _by_power(data.producer) or _by_products(data.producer)
        else ""
    )


def _product_with_one_more(node: NodeFacts) -> NodeFacts | None:
    """The Mul in ``(node + 1) * y``, if Add and Mul are each the only reader of their input; ``None`` otherwise."""
    add = only_consumer(node.output())
    if add is None or add.op != "Add" or not _has_scalar(add, 1.0):
        return None
    mul = only_consumer(add.output())
    return mul if mul is not None and mul.op == "Mul" else None


def _other(node: NodeFacts, op: str) -> NodeFacts | None:
    """The first node with the operator ``op`` that writes an input of ``node``; ``None`` if there is none."""
    makers = (v.producer for v in node.inputs if v is not None)
    return next((maker for maker in makers if maker is not None and maker.op == op), None)


def _by_power(scaled: NodeFacts) -> bool:
    """Return whether a Mul computes 0.79788 * (x + 0.044715 * Pow(x, 3))."""
    total = _other(scaled, "Add")
    cubic = _other(total, "Mul") if total is not None and _has_scalar(scaled, _INNER) else None
    power = _other(cubic, "Pow") if cubic is not None and _has_scalar(cubic, _CUBIC) else None
    return power is not None and _has_scalar(power, 3.0)


def _by_products(product: NodeFacts) -> bool:
    """Return whether a Mul computes (0.79788 * x) * (1 + x * (0.044715 * x))."""
    factor, addition = _other(product, "Mul"), _other(product, "Add")
    if factor is None or addition is None or not _has_scalar(factor, _INNER) or not _has_scalar(addition, 1.0):
        return False
    square = _other(addition, "Mul")
    inner = _other(square, "Mul") if square is not None else None
    return any(n is not None and _has_scalar(n, _CUBIC) for n in (square, inner))


def _is_gelu(erf: NodeFacts) -> bool:
    data = erf.input(0)
    if data is None or data.type != "float" or data.producer is None:
        return False
    before, mul = data.producer, _product_with_one_more(erf)
    factor = {"Div": 2**0.5, "Mul": 0.5**0.5}.get(before.op)
    if mul is None or factor is None or not _has_scalar(before, factor):
        return False
    # 0.5 * (1 + erf) first, then x; or 0.5 * x first; or 0.5 last
    halves = (mul, _other(mul, "Mul"), only_consumer(mul.output()))
    return any(n is not None and n.op == "Mul" and _has_scalar(n, 0.5) for n in halves)


def _has_scalar(node: NodeFacts, wanted: float) -> bool:
    return any((s := scalar(v)) is not None and abs(s - wanted) < 1e-3 for v in node.inputs)


def _rewrite_sum(facts: NodeFacts, edit: Edit) -> str:
    """Write erf - (-1) for erf + 1, or tanh - (-1) for tanh + 1: the same number, in a form that is not fused.

    The node is the Erf or the Tanh; its reader is the Add.
    """
    (reader, _), *_ = edit.node.outputs[0].uses()
    one = next((v for v in reader.inputs if v is not None and v is not edit.node.outputs[0]), None)
    if reader.op_type != "Add" or one is None:
        return "the Add after it has gone, so nothing is left to rewrite"
    anchor = edit.at(reader)
    minus = anchor.constant(np.array(-1.0, facts.required().numpy_type), "minus_one")
    return anchor.become(anchor.before("Sub", [edit.node.outputs[0], minus], like=reader.outputs[0]))


def _rewrite_fast_gelu(facts: NodeFacts, edit: Edit) -> str:
    """Write 0.5 x (1 + tanh(0.79788 (x + 0.044715 x^3))), in a form that ONNX Runtime does not fuse."""
    data, bias, old = edit.input(), edit.optional(1), edit.output
    dtype = facts.required().numpy_type

    def apply(op: str, first: ir.Value, second: ir.Value | float, what: str) -> ir.Value:
        operand = edit.constant(np.array(second, dtype), what) if isinstance(second, float) else second
        return edit.before(op, [first, operand], like=old)

    x = data if bias is None else apply("Add", data, bias, "bias")
    cube = apply("Mul", apply("Mul", x, x, "square"), x, "cube")
    inner = apply("Mul", apply("Add", x, apply("Mul", cube, 0.044715, "cubic"), "inner"), (2 / np.pi) ** 0.5, "scale")
    gate = apply("Sub", edit.before("Tanh", [inner], like=old), -1.0, "minus_one")
    return edit.become(apply("Mul", apply("Mul", x, 0.5, "half"), gate, "gate"))


GELU_TANH = Quirk(
    id="gelu-tanh",
    code="DP635",
    title="GELU by tanh that DirectML computes by erf",
    severity="warning",
    ops=("Tanh",),
    outcome="wrong numbers",
    first="1.18",
    sources=(
        "measured on onnxruntime-directml 1.19.2 to 1.24.4: 4.7e-4 off, the difference of the two GELUs",
        "onnxruntime/core/optimizer/fast_gelu_fusion.cc",
    ),
    matches=_by_tanh,
    rewrite=_rewrite_sum,
)

FAST_GELU = replace(
    GELU_TANH,
    id="fast-gelu",
    ops=("com.microsoft::FastGelu",),
    sources=(MEASURED + ": FastGelu is 4.3e-7 off the GELU by erf, 4.7e-4 off its own formula",),
    matches=_is_fast_gelu,
    rewrite=_rewrite_fast_gelu,
)

GELU_DECOMPOSED = Quirk(
    id="gelu-decomposed",
    code="DP508",
    ops=("Erf",),
    outcome="runs on the CPU",
    first="1.20",
    sources=(MEASURED, "onnxruntime/core/optimizer/gelu_fusion.cc"),
    matches=lambda node: (
        "ONNX Runtime fuses this GELU into Gelu-20" if node.opset >= GELU_OPSET and _is_gelu(node) else ""
    ),
    rewrite=_rewrite_sum,
)
