"""Lower reductions: newer versions have axes as an input, at opset 13 (ReduceSum) and 18 (the others)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from dmlprep.passes.opset.build import Builder, CannotLower, Steps, T, value_range

_BEFORE: dict[str, Callable[[Builder, ir.Value], ir.Value]] = {
    "ReduceL1": lambda b, x: b.op("Abs", x),
    "ReduceL2": lambda b, x: b.op("Mul", x, x),
    "ReduceSumSquare": lambda b, x: b.op("Mul", x, x),
}
_AFTER = {"ReduceL2": "Sqrt", "ReduceLogSum": "Log"}
# Operators that can reduce one axis after the other, with the same result as all axes together.
_ONE_AXIS = dict.fromkeys((*_BEFORE, "ReduceLogSum"), "ReduceSum")


def _before(b: Builder, x: ir.Value) -> ir.Value:
    return _BEFORE[b.node.op_type](b, x) if b.node.op_type in _BEFORE else x


def _after(b: Builder, y: ir.Value) -> ir.Value:
    return b.op(_AFTER[b.node.op_type], y) if b.node.op_type in _AFTER else y


def _elementwise(b: Builder, x: ir.Value) -> ir.Value:
    """Write what the node's reduction computes from each single element, for a node that reduces no axis."""
    return _after(b, _before(b, x))


def axes_to_attribute(b: Builder) -> list[ir.Value | None] | None:
    """Move constant axes to the attribute. For run-time axes, use ReduceSum, or reduce each axis and select.

    ReduceSum needs an operator that a sum can express, and opset 13. A node that reduces no axis
    (noop_with_empty_axes) is written element by element.

    Raises:
        CannotLower: a constant axis is not an integer or outside the rank, or axes are computed and the rank unknown.
    """
    axes = b.input(1)
    noop = bool(b.attr("noop_with_empty_axes", 0))
    if axes is None:
        if noop:
            return [_elementwise(b, b.need(0))]
        b.set_attr(noop_with_empty_axes=None)
        return None
    known = b.values.constant(axes)
    if known is None:
        return _run_time_axes(b, axes, noop)
    listed = b.whole_numbers(known, "its axes")
    if not listed and noop:
        return [_elementwise(b, b.need(0))]
    rank = b.values.rank(b.need(0))
    if b.target < 11 and any(a < 0 for a in listed):
        listed = [a % b.need_rank(b.need(0)) for a in listed]
    elif rank is not None and any(not -rank <= a < rank for a in listed):
        raise CannotLower(f"axes {listed} are outside rank {rank}")
    b.set_attr(noop_with_empty_axes=None, axes=listed or None)
    b.set_inputs([b.need(0)])
    return None


def chosen_axes(b: Builder, axes: ir.Value, rank: int, *, all_if_empty: bool) -> ir.Value:
    """Write a mask bool[rank] that is true for the dimensions in ``axes`` [n], which are computed at run time.

    ``all_if_empty``: empty axes mean all dimensions.
    """
    dims = b.const(np.arange(rank, dtype=np.int64).reshape(rank, 1))
    listed = b.op("Reshape", b.cast(axes, T.INT64), b.ints(1, -1))
    hits = b.cast(b.op("Equal", dims, b.from_start(listed, rank)), T.INT64)
    if all_if_empty:
        # An extra row that is true everywhere exactly when ``axes`` is empty.
        empty = b.cast(b.op("Equal", b.op("Size", axes), b.scalar(0)), T.INT64)
        column = b.op("Mul", b.op("Reshape", empty, b.ints(1, 1)), b.const(np.ones((rank, 1), np.int64)))
        hits = b.op("Concat", hits, column, axis=1)
    return b.op("Greater", b.op("ReduceSum", hits, b.ints(1), keepdims=0, version=13), b.scalar(0))


def _run_time_axes(b: Builder, axes: ir.Value, noop: bool) -> list[ir.Value | None]:
    x = b.need(0)
    rank = b.need_rank(x)
    name = str(b.node.op_type)
    if b.target >= 13 and (name in _ONE_AXIS or name == "ReduceMean"):
        return [_by_sum(b, x, axes, noop)]
    mask = chosen_axes(b, axes, rank, all_if_empty=not noop)
    x = _before(b, x)
    one_axis = _ONE_AXIS.get(name, name)
    shape = b.op("Shape", x)
    x = _never_empty(b, x, one_axis)
    for axis in range(rank):
        x = b.op("Where", b.op("Gather", mask, b.scalar(axis)), b.op(one_axis, x, b.ints(axis), keepdims=1), x)
    # Reduced dimensions repeat one value: keep their first element.
    ends = b.op("Where", mask, b.ints(*[1] * rank), shape)
    x = _after(b, b.op("Slice", x, b.ints(*[0] * rank), ends))
    if not b.attr("keepdims", 1):
        x = b.op("Reshape", x, b.op("Compress", shape, b.op("Not", mask), axis=0))
    return [x]


def _by_sum(b: Builder, x: ir.Value, axes: ir.Value, noop: bool) -> ir.Value:
    """Write the reduction over run-time ``axes`` with ReduceSum, which accepts them as an input from opset 13 on."""
    x = _before(b, x)
    y = b.op("ReduceSum", x, axes, keepdims=b.attr("keepdims", 1), noop_with_empty_axes=int(noop))
    if b.node.op_type == "ReduceMean":
        count = b.op("Div", b.op("Size", x), b.op("Size", y))
        y = b.op("Div", y, b.cast(count, b.need_dtype(x)))
    return _after(b, y)


def _never_empty(b: Builder, x: ir.Value, one_axis: str) -> ir.Value:
    """Pad each dimension of ``x`` that may be empty by one neutral element of the reduction ``one_axis``.

    Reducing an empty dimension then gives the result that ONNX defines. ReduceMean has no neutral element: no padding.
    """
    shape = b.values.dims(x) or ()
    pads = [0] * len(shape) + [0 if isinstance(d, int) and d > 0 else 1 for d in shape]
    if not any(pads) or one_axis == "ReduceMean":
        return x
    dtype = b.need_dtype(x)
    low, high = value_range(dtype)
    neutral = {"ReduceSum": 0, "ReduceProd": 1, "ReduceMax": low, "ReduceMin": high, "ReduceLogSumExp": low}[one_axis]
    return b.op("Pad", x, b.ints(*pads), b.typed(neutral, dtype))


def reduce_bool(b: Builder) -> list[ir.Value | None] | None:
    """Compute bool, which opset 20 added as logical or and and, in uint8; leave nodes of other types."""
    x = b.need(0)
    if b.values.dtype(x) != T.BOOL:
        return None
    (y,) = b.again(b.cast(x, T.UINT8), *b.node.inputs[1:], version=18)
    return [b.cast(y, T.BOOL)]


_MOVED_AT_18 = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")

STEPS: Steps = {
    **{(f"Reduce{name}", 18): axes_to_attribute for name in _MOVED_AT_18},
    ("ReduceSum", 13): axes_to_attribute,
    ("ReduceMax", 20): reduce_bool,
    ("ReduceMin", 20): reduce_bool,
}
