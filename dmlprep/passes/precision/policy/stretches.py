"""Patterns that several FP16 rules search for: arithmetic, squares, and the nodes that compute a value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from dmlprep.graph.analysis.operators import MOVES
from dmlprep.passes.precision.signature import operators
from dmlprep.passes.precision.view import NodeReasons, View, scalar

ELEMENTWISE = operators(
    "Abs Add Ceil Clip Cos Div Exp Floor Log Max Mean Min Mod Mul Neg Pow Reciprocal Round Sigmoid Sign "
    "Sin Sqrt Sub Sum Where Cast CastLike Range ConstantOfShape Relu Tanh"
)
COMPARES = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsInf", "IsNaN"})

_SMALL = 4096  # elements of a constant in arithmetic on positions; weights are larger


def scale_makers(
    values: Iterable[ir.Value | None], through: frozenset[str] = ELEMENTWISE | MOVES | {"ReduceMax", "ReduceMin"}
) -> Iterator[ir.Node]:
    """Yield the nodes that compute ``values``, backwards as long as their operators are in ``through``."""
    stack, visited = list(values), set[ir.Node]()
    while stack:
        value = stack.pop()
        node = value.producer() if value is not None else None
        if node is not None and node not in visited and node.op_type in through:
            visited.add(node)
            yield node
            stack += node.inputs


def through_moves(value: ir.Value | None) -> ir.Node | None:
    """Go back from a value over nodes that only move or cast it, and return the node that computes it.

    ``None`` if the value is a graph input or an initializer.
    """
    node = value.producer() if value is not None else None
    while node is not None and (node.op_type in MOVES or node.op_type == "Cast") and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node


def from_integers(view: View, also: Iterable[ir.Value] = (), through: frozenset[str] = frozenset()) -> set[ir.Value]:
    """Find the floating-point values that are computed only from integers, the values ``also`` and small constants.

    Such values are sizes, positions or masks. ``through`` names further operators that count as arithmetic.
    """
    values: set[ir.Value] = set(also)
    for node in view.order:
        small_product = node.op_type in ("MatMul", "Einsum", "Gemm")
        arithmetic = node.op_type in ELEMENTWISE | MOVES | through or small_product
        if not arithmetic or not any(view.wide(v) for v in node.outputs):
            continue
        wide = [v for _, v, _ in view.wide_inputs(node)]
        if node.op_type in ("Cast", "CastLike") and not wide:
            source = view.types.get(node.inputs[0]) if node.inputs[0] is not None else None
            comes = isinstance(source, ir.TensorType) and source.dtype.is_integer()
        else:
            rest = [v for v in wide if v not in values]
            comes = len(rest) < len(wide) and all(_small_constant(view, v) for v in rest)
        if comes or node.op_type == "Range":
            values.update(node.outputs)
    return values


def _small_constant(view: View, value: ir.Value) -> bool:
    # Movements of constants count as constants: an inverse frequency is often unsqueezed or expanded first.
    for _ in range(8):
        tensor = view.constant(value)
        if tensor is not None:
            return bool(tensor.size <= _SMALL)
        producer = value.producer()
        if producer is not None and producer.op_type == "ConstantOfShape":
            return True
        if producer is None or producer.op_type not in MOVES or not producer.inputs or producer.inputs[0] is None:
            return False
        value = producer.inputs[0]
    return False


def upstream(ends: list[ir.Value], inside: set[ir.Value]) -> set[ir.Node]:
    """Return the nodes that compute ``ends`` from other values of ``inside``; ends outside ``inside`` are ignored."""
    producers: set[ir.Node] = set()
    stack = [v for v in ends if v in inside]
    while stack:
        producer = stack.pop().producer()
        if producer is None or producer in producers:
            continue
        producers.add(producer)
        stack += [v for v in producer.inputs if v is not None and v in inside]
    return producers


def is_square(view: View, node: ir.Node) -> bool:
    """Return whether a node multiplies a value by itself."""
    if node.op_type == "Mul":
        return node.inputs[0] is node.inputs[1] and view.wide(node.inputs[0])
    return node.op_type == "Pow" and view.wide(node.inputs[0]) and scalar(view.constant(node.inputs[1])) == 2.0


def to_the_root(view: View, value: ir.Value) -> NodeReasons:
    """Yield the nodes after ``value``, a mean of squares, up to its root, with the reason to keep them in FP32."""
    stack, steps = [value], 0
    while stack and steps < 16:
        steps += 1
        for node in stack.pop().consumers():
            if node.op_type in ("Sqrt", "Pow", "Reciprocal", "Log"):
                yield node, "the root of a mean of squares, which might overflow FP16"
            elif (
                node.op_type in ("Add", "Mul", "Div", "Sub", "Max", "Clip")
                and any(view.constant(v) is not None for v in node.inputs)
            ) or node.op_type in MOVES:
                yield node, "a part of the root of a mean of squares, which might overflow FP16"
                stack += node.outputs
