"""Operators whose inner steps matter in FP16: normalisations and sums, taken apart for the FP16 emulation.

Each function builds FP32 nodes with roundings between them in place of one node.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from dmlprep.graph.analysis.knowledge import constant_of
from dmlprep.passes.precision.emulation.rounding import Builder

_BLOCKS = 8
"""Into how many partial sums a long sum is cut where FP16 accumulators are meant: rounding after every product would
take as many nodes as products, and 8 blocks show overflow and most of the loss."""


def decompose(node: ir.Node, builder: Builder, *, everywhere: bool) -> bool:
    """Replace a node whose inner steps are rounded.

    Args:
        everywhere: whether sums are rounded inside, too; variances always are.

    Returns:
        whether the node was replaced; what else reads it reads the replacement.
    """
    if node.domain:
        return False
    recipe = _NORMALISATIONS.get(node.op_type) or (_SUMS.get(node.op_type) if everywhere else None)
    if recipe is None:
        return False
    result = recipe(node, builder)
    if result is None:
        builder.made = []
        return False
    value = node.outputs[0]
    builder.replace(value, builder.round(result, like=value), "replaced")
    builder.graph.remove(node, safe=True)
    return True


def _rank(value: ir.Value | None) -> int | None:
    return len(value.shape) if value is not None and value.shape is not None else None


def _size(value: ir.Value | None, axis: int) -> int | None:
    if value is None or value.shape is None:
        return None
    size = value.shape[axis]
    return size if isinstance(size, int) else None


def _mean(builder: Builder, value: ir.Value, axes: list[int]) -> ir.Value:
    if builder.opset >= 18:
        return builder.op("ReduceMean", [value, builder.ints(axes)], keepdims=1)
    return builder.op("ReduceMean", [value], axes=axes, keepdims=1)


def _normalise(builder: Builder, value: ir.Value, axes: list[int], epsilon: float, *, centre: bool = True) -> ir.Value:
    """(x - mean) / sqrt(variance + epsilon), mean and variance rounded; squares and sums in FP32, as on DirectML."""
    middle = value
    if centre:
        middle = builder.op("Sub", [value, builder.round(_mean(builder, value, axes))], like=value)
    variance = builder.round(_mean(builder, builder.op("Mul", [middle, middle], like=value), axes))
    spread = builder.op("Sqrt", [builder.op("Add", [variance, builder.number(epsilon)])])
    return builder.op("Div", [middle, spread], like=value)


def _layer(node: ir.Node, builder: Builder) -> ir.Value | None:
    value = node.inputs[0]
    rank = _rank(value)
    if value is None or rank is None or any(v.uses() or v.is_graph_output() for v in node.outputs[1:]):
        return None
    axis = node.attributes.get_int("axis", -1) % rank
    result = _normalise(
        builder,
        value,
        list(range(axis, rank)),
        node.attributes.get_float("epsilon", 1e-5),
        centre=node.op_type == "LayerNormalization",
    )
    result = builder.op("Mul", [result, node.inputs[1]], like=value)
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        result = builder.op("Add", [result, node.inputs[2]], like=value)
    return result


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


def _matmul(node: ir.Node, builder: Builder) -> ir.Value | None:
    left, right = node.inputs[:2]
    rank_left, rank_right = _rank(left), _rank(right)
    if left is None or right is None or rank_left is None or rank_right is None or min(rank_left, rank_right) < 2:
        return None
    size = _size(right, -2) or _size(left, -1)
    if size is None or size < 16:
        return None
    sizes = _blocks(size)
    lefts, rights = _split(builder, left, sizes, rank_left - 1), _split(builder, right, sizes, rank_right - 2)
    parts = [builder.op("MatMul", [a, b], like=node.outputs[0]) for a, b in zip(lefts, rights, strict=True)]
    return _accumulate(builder, parts, node.outputs[0])


def _gemm(node: ir.Node, builder: Builder) -> ir.Value | None:
    left, right = node.inputs[:2]
    if left is None or right is None or _rank(left) != 2 or _rank(right) != 2:
        return None
    over_left, over_right = (
        int(not node.attributes.get_int("transA", 0)),
        int(bool(node.attributes.get_int("transB", 0))),
    )
    size = _size(right, over_right) or _size(left, over_left)
    if size is None or size < 16:
        return None
    sizes = _blocks(size)
    parts: list[ir.Value] = []
    for a, b in zip(_split(builder, left, sizes, over_left), _split(builder, right, sizes, over_right), strict=True):
        inputs = [a, b] if parts or len(node.inputs) < 3 or node.inputs[2] is None else [a, b, node.inputs[2]]
        if len(inputs) == 2 and builder.opset < 11:  # C was no option then
            inputs.append(builder.number(0.0))
        made = builder.op("Gemm", inputs, like=node.outputs[0])
        producer = builder.made[-1]
        for attribute in node.attributes.values():
            producer.attributes[attribute.name] = attribute
        parts.append(made)
    return _accumulate(builder, parts, node.outputs[0])


def _conv(node: ir.Node, builder: Builder) -> ir.Value | None:
    value, weight = node.inputs[:2]
    size = _size(weight, 1)
    if value is None or weight is None or node.attributes.get_int("group", 1) != 1 or size is None or size < 16:
        return None
    sizes = _blocks(size)
    parts: list[ir.Value] = []
    for a, b in zip(_split(builder, value, sizes, 1), _split(builder, weight, sizes, 1), strict=True):
        inputs = [a, b] if parts or len(node.inputs) < 3 or node.inputs[2] is None else [a, b, node.inputs[2]]
        made = builder.op("Conv", inputs, like=node.outputs[0])
        for attribute in node.attributes.values():
            builder.made[-1].attributes[attribute.name] = attribute
        parts.append(made)
    return _accumulate(builder, parts, node.outputs[0])


def _axes(node: ir.Node, rank: int, ir_version: int) -> list[int] | None:
    given = node.attributes.get("axes")
    if given is not None:
        return [a % rank for a in given.as_ints()]
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        constant = constant_of(node.inputs[1], ir_version)
        return [int(a) % rank for a in constant.numpy().reshape(-1)] if constant is not None else None
    return list(range(rank))


def _reduce(node: ir.Node, builder: Builder) -> ir.Value | None:
    """ReduceSum and ReduceMean over one static axis."""
    value = node.inputs[0]
    rank = _rank(value)
    axes = _axes(node, rank, builder.constants.ir_version) if rank else None
    if value is None or axes is None or len(axes) != 1 or not node.attributes.get_int("keepdims", 1):
        return None
    size = _size(value, axes[0])
    if size is None or size < 16:
        return None
    parts: list[ir.Value] = []
    for part in _split(builder, value, _blocks(size), axes[0]):
        if builder.opset >= 13:
            parts.append(builder.op("ReduceSum", [part, builder.ints(axes)], keepdims=1))
        else:
            parts.append(builder.op("ReduceSum", [part], axes=axes, keepdims=1))
    total = _accumulate(builder, parts, node.outputs[0])
    return total if node.op_type == "ReduceSum" else builder.op("Mul", [total, builder.number(1 / size)])


_NORMALISATIONS: dict[str, Callable[[ir.Node, Builder], ir.Value | None]] = {
    "LayerNormalization": _layer,
    "RMSNormalization": _layer,
    "InstanceNormalization": _instance,
}
_SUMS: dict[str, Callable[[ir.Node, Builder], ir.Value | None]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ReduceSum": _reduce,
    "ReduceMean": _reduce,
}
