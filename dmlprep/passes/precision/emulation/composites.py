"""Emulate operators whose inner steps matter in FP16 (normalisations and sums): FP32 nodes with roundings between."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from dmlprep.graph.analysis.knowledge import constant_of
from dmlprep.passes.precision.emulation.rounding import Builder

_BLOCKS = 8
"""The most parts into which a sum is split to emulate an FP16 accumulator. Rounding after every product would need a
node for each product; 8 parts show overflow and most of the loss."""

_SHORTEST = 16
"""A sum of fewer terms is not split."""


def decompose(node: ir.Node, builder: Builder, *, everywhere: bool) -> bool:
    """Replace a normalisation or sum by FP32 nodes that round its inner steps to FP16; return whether it was replaced.

    Args:
        everywhere: also replace sums (MatMul, Gemm, Conv, ReduceSum, ReduceMean), not only normalisations. Nodes of
            unknown rank or size, and short sums, stay.
    """
    if node.domain:
        return False
    recipe = _NORMALISATIONS.get(node.op_type) or (_SUMS.get(node.op_type) if everywhere else None)
    if recipe is None:
        return False
    result = recipe(node, builder)
    if result is None:
        builder.new_nodes = []
        return False
    value = node.outputs[0]
    builder.replace(value, builder.round(result, like=value), "replaced")
    builder.graph.remove(node, safe=True)
    return True


def _rank(value: ir.Value | None) -> int | None:
    return len(value.shape) if value is not None and value.shape is not None else None


def _size(value: ir.Value | None, axis: int) -> int | None:
    size = value.shape[axis] if value is not None and value.shape is not None else None
    return size if isinstance(size, int) else None


def _normalise(builder: Builder, value: ir.Value, axes: list[int], epsilon: float, *, centre: bool = True) -> ir.Value:
    """Write (x - mean) / sqrt(variance + epsilon) with mean and variance rounded to FP16, and return its output.

    Squares and sums stay in FP32, as in DirectML. ``centre`` false: without the mean (RMSNormalization).
    """
    middle = value
    if centre:
        middle = builder.op("Sub", [value, builder.round(builder.reduce("ReduceMean", value, axes))], like=value)
    variance = builder.round(builder.reduce("ReduceMean", builder.op("Mul", [middle, middle], like=value), axes))
    spread = builder.op("Sqrt", [builder.op("Add", [variance, builder.number(epsilon)])])
    return builder.op("Div", [middle, spread], like=value)


def _layer(node: ir.Node, builder: Builder) -> ir.Value | None:
    value = node.inputs[0]
    rank = _rank(value)
    if value is None or rank is None or any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
        return None
    axis = node.attributes.get_int("axis", -1) % rank
    centre, epsilon = node.op_type == "LayerNormalization", node.attributes.get_float("epsilon", 1e-5)
    result = _normalise(builder, value, list(range(axis, rank)), epsilon, centre=centre)
    result = builder.op("Mul", [result, node.inputs[1]], like=value)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return result if bias is None else builder.op("Add", [result, bias], like=value)


def _instance(node: ir.Node, builder: Builder) -> ir.Value | None:
    value = node.inputs[0]
    rank = _rank(value)
    if value is None or rank is None:
        return None
    result = _normalise(builder, value, list(range(2, rank)), node.attributes.get_float("epsilon", 1e-5))
    column = builder.ints([1, -1, *[1] * (rank - 2)])
    scale, bias = (builder.op("Reshape", [v, column]) for v in node.inputs[1:3])
    return builder.op("Add", [builder.op("Mul", [result, scale], like=value), bias], like=value)


def _blocks(size: int) -> list[int]:
    count = min(_BLOCKS, max(1, size // 8))
    base, rest = divmod(size, count)
    return [base + (i < rest) for i in range(count)]


def _split(builder: Builder, value: ir.Value, sizes: list[int], axis: int) -> list[ir.Value]:
    parts: list[ir.Value] = []
    start = 0
    for size in sizes:
        stop = start + size
        if builder.opset >= 10:
            bounds = [builder.ints([start]), builder.ints([stop]), builder.ints([axis])]
            parts.append(builder.op("Slice", [value, *bounds]))
        else:
            parts.append(builder.op("Slice", [value], starts=[start], ends=[stop], axes=[axis]))
        start = stop
    return parts


def _accumulate(builder: Builder, parts: list[ir.Value], like: ir.Value) -> ir.Value:
    total = builder.round(parts[0], like)
    for part in parts[1:]:
        total = builder.round(builder.op("Add", [total, builder.round(part, like)], like=like), like)
    return total


def _products(node: ir.Node, builder: Builder, axes: tuple[int, int], size: int | None) -> ir.Value | None:
    """Write a product (MatMul, Gemm, Conv) as a rounded sum of products of parts of its operands.

    Args:
        axes: the axes of both operands that the product sums over; they are split.
        size: the size of these axes.

    Returns:
        the sum; ``None`` if the size is unknown or too small to split.
    """
    lhs, rhs = node.inputs[:2]
    if lhs is None or rhs is None or size is None or size < _SHORTEST:
        return None
    sizes, bias = _blocks(size), node.inputs[2] if len(node.inputs) > 2 else None
    parts: list[ir.Value] = []
    for a, b in zip(_split(builder, lhs, sizes, axes[0]), _split(builder, rhs, sizes, axes[1]), strict=True):
        inputs = [a, b] if parts or bias is None else [a, b, bias]
        if node.op_type == "Gemm" and len(inputs) == 2 and builder.opset < 11:  # C was required before
            inputs.append(builder.number(0.0))
        parts.append(builder.op(node.op_type, inputs, like=node.outputs[0], **node.attributes))
    return _accumulate(builder, parts, node.outputs[0])


def _matmul(node: ir.Node, builder: Builder) -> ir.Value | None:
    lhs, rhs = node.inputs[:2]
    ranks = _rank(lhs) or 0, _rank(rhs) or 0
    size = _size(rhs, -2) or _size(lhs, -1) if min(ranks) > 1 else None
    return _products(node, builder, (ranks[0] - 1, ranks[1] - 2), size)


def _gemm(node: ir.Node, builder: Builder) -> ir.Value | None:
    lhs, rhs = node.inputs[:2]
    axes = int(not node.attributes.get_int("transA", 0)), int(bool(node.attributes.get_int("transB", 0)))
    size = _size(rhs, axes[1]) or _size(lhs, axes[0]) if _rank(lhs) == _rank(rhs) == 2 else None
    return _products(node, builder, axes, size)


def _conv(node: ir.Node, builder: Builder) -> ir.Value | None:
    alone = node.attributes.get_int("group", 1) == 1
    return _products(node, builder, (1, 1), _size(node.inputs[1], 1) if alone else None)


def _axes(node: ir.Node, rank: int, ir_version: int) -> list[int] | None:
    attribute = node.attributes.get("axes")
    if attribute is not None:
        return [a % rank for a in attribute.as_ints()]
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        constant = constant_of(node.inputs[1], ir_version)
        return [int(a) % rank for a in constant.numpy().reshape(-1)] if constant is not None else None
    return list(range(rank))


def _reduce(node: ir.Node, builder: Builder) -> ir.Value | None:
    """Write a ReduceSum or ReduceMean over one axis of known size as a rounded sum of partial sums.

    Returns:
        the result; ``None`` for other axes, fewer than 16 terms, or without keepdims.
    """
    value = node.inputs[0]
    rank = _rank(value)
    axes = _axes(node, rank, builder.constants.ir_version) if rank else None
    if value is None or axes is None or len(axes) != 1 or not node.attributes.get_int("keepdims", 1):
        return None
    size = _size(value, axes[0])
    if size is None or size < _SHORTEST:
        return None
    parts = [builder.reduce("ReduceSum", part, axes) for part in _split(builder, value, _blocks(size), axes[0])]
    total = _accumulate(builder, parts, node.outputs[0])
    return total if node.op_type == "ReduceSum" else builder.op("Mul", [total, builder.number(1 / size)])


_Recipe = Callable[[ir.Node, Builder], ir.Value | None]
_NORMALISATIONS: dict[str, _Recipe] = {
    "LayerNormalization": _layer,
    "RMSNormalization": _layer,
    "InstanceNormalization": _instance,
}
_SUMS: dict[str, _Recipe] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ReduceSum": _reduce,
    "ReduceMean": _reduce,
}
