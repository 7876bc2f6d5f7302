"""FP16 rule for variances computed as the difference of two means, E[x * y] - E[x] * E[y]: FP16 loses all digits."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.graph.analysis.operators import MOVES
from dmlprep.passes.precision.view import NodeReasons, View, scalar

_MEANS = frozenset({"ReduceMean", "ReduceSum", "AveragePool", "GlobalAveragePool", "Conv"})
"""Operators that compute a mean, or a sum that a factor turns into a mean; a Conv of equal weights is a box filter."""

_STEPS = 8
"""The most nodes (factors, moves) between a mean and the node that uses it."""


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """Find all nodes of such variances: products, means, differences, and the epsilon, quotient or root after them."""
    for node in view.order:
        if node.op_type != "Sub" or not view.is_float(node):
            continue
        minuend, product = node.inputs[0], _product(view, node.inputs[1])
        if minuend is None or product is None:
            continue
        first, one = _mean(view, minuend)
        inner = _product(view, one)
        means = [_mean(view, value) for value in product[1]]
        if inner is None or not all(way for way, _ in means):
            continue
        if {id(value) for value in inner[1]} != {id(source) for _, source in means}:
            continue
        parts = [inner[0], *first, *(step for way, _ in means for step in way), product[0], node, *_behind(view, node)]
        for part in dict.fromkeys(parts):
            yield part, "a variance as the difference of two means: FP16 loses its digits"


def _product(view: View, value: ir.Value | None) -> tuple[ir.Node, tuple[ir.Value, ...]] | None:
    """The node (Mul or square) that computes ``value``, and its one or two factors.

    ``None`` if ``value`` is not a product, or if a factor is constant.
    """
    node = value.producer() if value is not None else None
    if node is None or node.op_type not in ("Mul", "Pow") or not all(view.wide(v) for v in node.outputs):
        return None
    lhs, rhs = node.inputs[:2]
    if lhs is None or rhs is None:
        return None
    if node.op_type == "Pow":
        return (node, (lhs,)) if scalar(view.constant(rhs)) == 2.0 else None
    return None if any(view.constant(v) is not None for v in (lhs, rhs)) else (node, (lhs, rhs))


def _mean(view: View, value: ir.Value | None) -> tuple[list[ir.Node], ir.Value | None]:
    """The nodes that compute ``value`` as a mean, perhaps moved or scaled, and the value that is averaged.

    An empty list and ``None`` if ``value`` is not a mean.
    """
    way: list[ir.Node] = []
    for _ in range(_STEPS):
        node = value.producer() if value is not None else None
        if node is None:
            break
        way.append(node)
        value = node.inputs[0]
        if node.op_type in _MEANS:
            return way, value
        if node.op_type == "Mul" and view.constant(value) is not None:
            value = node.inputs[1]
        elif node.op_type not in MOVES and (
            node.op_type not in ("Mul", "Div") or view.constant(node.inputs[1]) is None
        ):
            break
    return [], None


def _behind(view: View, difference: ir.Node) -> Iterator[ir.Node]:
    """Yield the nodes after a variance: an epsilon, a bound or a factor, and the quotient or root that reads it."""
    stack = [difference]
    for _ in range(_STEPS):
        if not stack:
            return
        for node in stack.pop().outputs[0].consumers():
            if node.op_type in ("Sqrt", "Pow", "Reciprocal", "Log", "Div"):
                yield node
            elif node.op_type in ("Relu", "Abs", *MOVES) or (
                node.op_type in ("Add", "Mul", "Max", "Clip") and any(view.constant(v) is not None for v in node.inputs)
            ):
                yield node
                stack.append(node)
