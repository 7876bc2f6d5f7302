"""Lower ScatterElements and ScatterND with a reduction, TensorScatter, Trilu and CumProd."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from dmlprep.passes.opset.build import Builder, CannotLower, Steps, T, value_range

_LARGEST = 1 << 26
"""Limit on the elements of the intermediate tensor of ``_scatter_reduce`` (64 Mi elements: 256 MiB of FP32)."""

_COMBINE = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}
_REDUCE = {"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}


def _neutral(reduction: str, dtype: int) -> float | int:
    """The neutral element of a reduction ("add", "mul", "max", "min") in an element type."""
    low, high = value_range(dtype)
    return {"add": 0, "mul": 1, "max": low, "min": high}[reduction]


def _scatter_reduce(
    b: Builder, data: ir.Value, where: ir.Value, updates: ir.Value, axis: int, reduction: str
) -> ir.Value:
    """Write a scatter with a reduction: combine each element of ``updates`` with the element of ``data`` it belongs to.

    ``where`` has the index of that element along ``axis``. ``data`` is [..., I, ...]; ``where`` and ``updates`` are
    [..., J, ...]. The sizes of all other dimensions are equal.

    Raises:
        CannotLower: the comparison of all indices with all positions has too many elements.
    """
    sizes = [b.values.static_shape(v) for v in (data, updates)]
    held = math.prod(sizes[1]) * sizes[0][axis] if sizes[0] is not None and sizes[1] is not None else 0
    if held > _LARGEST:
        raise CannotLower(f"its rewriting would need {held} elements in memory, at most {_LARGEST} are allowed")
    dtype, rank = b.need_dtype(data), b.need_rank(data)
    length = b.dim(data, axis)
    column = b.op("Reshape", b.op("Range", b.scalar(0), b.op("Squeeze", length, b.ints(0)), b.scalar(1)), b.ints(-1, 1))
    rows = b.op("Reshape", column, b.ints(*([-1, 1] + [1] * (rank - 1 - axis))))  # [I, 1, ...]: I is at ``axis``
    index = b.from_start(b.cast(where, T.INT64), length)
    hit = b.op("Equal", b.op("Unsqueeze", index, b.ints(axis)), rows)  # [..., I, J, ...]
    spread = b.op("Where", hit, b.op("Unsqueeze", updates, b.ints(axis)), b.typed(_neutral(reduction, dtype), dtype))
    reduced = b.op(_REDUCE[reduction], spread, b.ints(axis + 1), keepdims=0)
    return b.op(_COMBINE[reduction], data, reduced)


def _reduction(b: Builder) -> str:
    """The node's reduction, if it must be rewritten; empty if it has none, or one that the target has.

    It also removes the attribute ``reduction`` = "none" where the version before lacks the attribute.

    Raises:
        CannotLower: ONNX has no such reduction.
    """
    reduction = str(b.attr("reduction", "none"))
    if reduction not in ("none", *_REDUCE):
        raise CannotLower(f"ONNX has no reduction {reduction[:40]!r}")
    if reduction != "none":
        return "" if b.version >= 18 and reduction in ("add", "mul") and b.target >= 16 else reduction
    if b.version < 18:
        b.set_attr(reduction=None)
    return ""


def scatter_elements(b: Builder) -> list[ir.Value | None] | None:
    """Write a reduction that the target lacks by comparing every index with every position; leave other nodes.

    Raises:
        CannotLower: shapes are not fixed, updates cover a part of another dimension, or the comparison is too large.
    """
    reduction = _reduction(b)
    if not reduction:
        return None
    data, where, updates = b.need(0), b.need(1), b.need(2)
    axis = b.attr("axis", 0) % b.need_rank(data)
    shapes = b.values.static_shape(data), b.values.static_shape(updates)
    if shapes[0] is None or shapes[1] is None:
        raise CannotLower(
            f"reduction {reduction} needs fixed shapes: pin the free dimensions of the model", in_function=True
        )
    for i, (size, update_size) in enumerate(zip(shapes[0], shapes[1], strict=True)):
        if i != axis and size != update_size:
            raise CannotLower(
                f"reduction {reduction} has no older form where the updates cover only a part of dimension {i}"
            )
    return [_scatter_reduce(b, data, where, updates, axis, reduction)]


def scatter_nd(b: Builder) -> list[ir.Value | None] | None:
    """Write a reduction that the target lacks by comparing every index with every row of data; leave other nodes.

    Raises:
        CannotLower: shapes are not fixed, or the comparison is too large.
    """
    reduction = _reduction(b)
    if not reduction:
        return None
    data, where, updates = b.need(0), b.cast(b.need(1), T.INT64), b.need(2)
    shapes = b.values.static_shape(data), b.values.static_shape(where)
    if shapes[0] is None or shapes[1] is None:
        raise CannotLower(
            f"reduction {reduction} needs fixed shapes: pin the free dimensions of the model", in_function=True
        )
    depth = shapes[1][-1]
    outer = shapes[0][:depth]
    rest, count = math.prod(shapes[0][depth:]), math.prod(shapes[1][:-1])
    wrapped = b.from_start(where, b.ints(*outer))
    strides = b.ints(*[math.prod(outer[i + 1 :]) for i in range(depth)])
    flat = b.op("ReduceSum", b.op("Mul", wrapped, strides), b.ints(-1), keepdims=0, version=13)
    index = b.op("Expand", b.op("Reshape", flat, b.ints(count, 1)), b.ints(count, rest))
    table = b.op("Reshape", data, b.ints(math.prod(outer), rest))
    reduced = _scatter_reduce(b, table, index, b.op("Reshape", updates, b.ints(count, rest)), 0, reduction)
    return [b.op("Reshape", reduced, b.ints(*shapes[0]))]


def tensor_scatter_24(b: Builder) -> list[ir.Value | None]:
    """Write a cache update as ScatterElements: each sample's elements go to positions from that sample's start on."""
    cache, update, start = b.need(0), b.need(1), b.input(2)
    rank = b.need_rank(cache)
    axis = b.attr("axis", -2) % rank
    length = b.op("Squeeze", b.dim(update, axis), b.ints(0))
    at = b.op("Range", b.scalar(0), length, b.scalar(1))
    at = b.op("Reshape", at, b.ints(*([1] * axis + [-1] + [1] * (rank - axis - 1))))
    if start is not None:
        at = b.op("Add", at, b.op("Reshape", b.cast(start, T.INT64), b.ints(*([-1] + [1] * (rank - 1)))))
    if b.attr("mode", "linear") == "circular":
        at = b.op("Mod", at, b.dim(cache, axis))
    return [b.op("ScatterElements", cache, b.op("Expand", at, b.op("Shape", update)), update, axis=axis)]


def trilu_14(b: Builder) -> list[ir.Value | None]:
    """Compare column and row numbers, and set the elements on the other side of the diagonal to 0."""
    x, k = b.need(0), b.input(1)
    rank = b.need_rank(x)
    sizes = [b.op("Squeeze", b.dim(x, rank - 2 + i), b.ints(0)) for i in range(2)]
    rows = b.op("Reshape", b.op("Range", b.scalar(0), sizes[0], b.scalar(1)), b.ints(-1, 1))
    columns = b.op("Range", b.scalar(0), sizes[1], b.scalar(1))
    if k is not None:
        rows = b.op("Add", rows, b.op("Reshape", k, b.ints(1)))
    drop = b.op("Less" if b.attr("upper", 1) else "Greater", columns, rows)
    dtype = b.need_dtype(x)
    if dtype == T.BOOL:
        return [b.op("And", x, b.op("Not", drop))]
    return [b.op("Where", drop, b.typed(0, dtype), x)]


def cum_prod_26(b: Builder) -> list[ir.Value | None]:
    """Write running products by doubling: after step k each element is the product of the last 2^k elements.

    Raises:
        CannotLower: the shape is not fixed.
    """
    x, axis = b.need(0), b.need(1)
    shape = b.values.static_shape(x)
    if shape is None:
        raise CannotLower("the size of its axis is unknown: pin the free dimensions of the model", in_function=True)
    rank = len(shape)
    known = b.values.constant(axis)
    if known is not None:
        return [_running_product(b, x, int(known.reshape(-1)[0]) % rank, shape)]
    wanted = b.from_start(b.op("Reshape", b.cast(axis, T.INT64), b.ints(-1)), rank)
    result = x
    for candidate in range(rank):
        here = b.op("Equal", wanted, b.scalar(candidate))
        result = b.op("Where", here, _running_product(b, x, candidate, shape), result)
    return [result]


def _running_product(b: Builder, x: ir.Value, axis: int, shape: list[int]) -> ir.Value:
    size, rank = shape[axis], len(shape)
    dim = b.ints(axis)

    def backwards(value: ir.Value) -> ir.Value:
        return b.op("Slice", value, b.ints(-1), b.ints(np.iinfo(np.int64).min), dim, b.ints(-1))

    def shifted(value: ir.Value, by: int) -> ir.Value:
        pads = [0] * (2 * rank)
        pads[axis] = by
        return b.op("Slice", b.op("Pad", value, b.ints(*pads), b.like(1, x)), b.ints(0), b.ints(size), dim)

    if b.attr("reverse", 0):
        x = backwards(x)
    if b.attr("exclusive", 0):
        x = shifted(x, 1)
    for power in range(max(0, size - 1).bit_length()):
        x = b.op("Mul", x, shifted(x, 1 << power))
    return backwards(x) if b.attr("reverse", 0) else x


STEPS: Steps = {
    **{("ScatterElements", since): scatter_elements for since in (18, 16)},
    **{("ScatterND", since): scatter_nd for since in (18, 16)},
    ("TensorScatter", 24): tensor_scatter_24,
    ("Trilu", 14): trilu_14,
    ("CumProd", 26): cum_prod_26,
}
