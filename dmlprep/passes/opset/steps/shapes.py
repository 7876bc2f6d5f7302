"""Lower shape operators: Squeeze, Unsqueeze, Reshape, Shape, Split, Pad, ConstantOfShape."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from dmlprep.graph.analysis.symbolic import known_in_parts
from dmlprep.passes.opset.build import Builder, CannotLower, Steps, T
from dmlprep.passes.opset.steps.reductions import chosen_axes


def squeeze_13(b: Builder) -> list[ir.Value | None] | None:
    """Move constant axes to the attribute. For axes that are computed at run time, write a Reshape.

    Raises:
        CannotLower: the axes are computed, and the rank is unknown.
    """
    axes = b.input(1)
    if axes is None:
        return None
    known = b.values.constant(axes)
    if known is None:
        x = b.need(0)
        mask = chosen_axes(b, axes, b.need_rank(x), all_if_empty=False)
        return [b.op("Reshape", x, b.op("Compress", b.op("Shape", x), b.op("Not", mask), axis=0))]
    b.set_attr(axes=b.whole_numbers(known, "its axes"))
    b.set_inputs([b.need(0)])
    return None


def unsqueeze_13(b: Builder) -> list[ir.Value | None] | None:
    """Move constant axes to the attribute. For axes that are computed at run time, write a Reshape.

    Raises:
        CannotLower: the axes are computed, and their number or the rank is unknown.
    """
    axes = b.need(1)
    known = b.values.constant(axes)
    if known is None:
        x = b.need(0)
        rank = b.need_rank(x)
        counted = b.values.static_shape(axes)
        if counted is None:
            raise CannotLower(
                f"the number of axes ({axes.name!r}) is unknown: pin the free dimensions of the model", in_function=True
            )
        mask = chosen_axes(b, axes, rank + (counted[0] if counted else 1), all_if_empty=False)
        old = b.cast(b.op("Not", mask), T.INT64)
        # The k-th old dimension is where the running count of old dimensions is k.
        at = b.op("Sub", b.op("CumSum", old, b.scalar(0), version=11), b.scalar(1))
        padded = b.op("Concat", b.op("Shape", x), b.ints(1), axis=0)
        return [b.op("Reshape", x, b.op("Gather", padded, b.op("Where", mask, b.ints(rank), at)))]
    b.set_attr(axes=b.whole_numbers(known, "its axes"))
    b.set_inputs([b.need(0)])
    return None


_KEEP_COUNT = {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast", "Abs", "Neg"}


def _never_empty(b: Builder, value: ir.Value) -> bool:
    """Return whether a value surely has elements: its shape, or that before reshapes and casts, is static with no 0."""
    at: ir.Value | None = value
    while at is not None:
        static = b.values.static_shape(at)
        if static is not None:
            return math.prod(static) > 0
        node = at.producer()
        if node is None or node.op_type not in _KEEP_COUNT:
            return False
        at = node.inputs[0]
    return False


def reshape_14(b: Builder) -> list[ir.Value | None] | None:
    """Drop allowzero where it is 0 or the shape surely has no 0; otherwise write nodes that give empty dimensions.

    Raises:
        CannotLower: such nodes are needed, and the rank of the output is unknown.
    """
    x, wanted = b.need(0), b.need(1)
    shape = b.values.constant(wanted)
    sizes = known_in_parts(b.values, wanted) if b.attr("allowzero", 0) else ()
    # A 0 is invalid next to -1, and impossible for an input with elements.
    if (
        not b.attr("allowzero", 0)
        or -1 in (sizes or ())
        or (shape is not None and 0 not in shape)
        or _never_empty(b, x)
    ):
        b.set_attr(allowzero=None)
        return None
    if b.values.static_shape(x) is not None and shape is not None and -1 not in shape:
        empty = b.op("ConstantOfShape", wanted, version=9)  # an empty output: only its shape counts
        return [b.cast(empty, b.need_dtype(x))]
    return [_literal_zeros(b, x, wanted)]


def _literal_zeros(b: Builder, x: ir.Value, wanted: ir.Value) -> ir.Value:
    """Write a Reshape to a shape that is only known at run time, and whose zeros mean empty dimensions.

    If the shape has zeros, the nodes reshape to ones instead, after padding ``x`` to enough elements, and slice the
    result to the shape. Otherwise the padding and the slice have no effect.

    Raises:
        CannotLower: the rank of the output is unknown.
    """
    counted = b.values.static_shape(wanted)
    if counted is None:
        raise CannotLower(
            "allowzero is set, and the rank of its output is unknown: pin the free dimensions of the model",
            in_function=True,
        )
    zero = b.scalar(0)
    filled = b.op("Where", b.op("Equal", wanted, zero), b.scalar(1), wanted)
    lacking = b.op("Sub", b.op("ReduceProd", filled, b.ints(0), keepdims=1), b.op("Size", x))
    missing = b.op("Where", b.op("Less", lacking, zero), zero, lacking)  # Max accepts no integers before opset 12
    padded = b.op("Pad", b.op("Reshape", x, b.ints(-1)), b.op("Concat", b.ints(0), missing, axis=0))
    whole = b.op("Reshape", padded, filled)
    ends = b.op("Where", b.op("Less", wanted, zero), b.scalar(np.iinfo(np.int64).max), wanted)
    return b.op("Slice", whole, b.ints(*[0] * counted[0]), ends)


def shape_15(b: Builder) -> list[ir.Value | None] | None:
    """Write start and end as a Slice of the whole shape; without them, leave the node."""
    start, end = b.attr("start", 0), b.attr("end")
    if not start and end is None:
        b.set_attr(start=None)
        return None
    whole = b.op("Shape", b.need(0), version=13)
    rank = b.values.rank(b.need(0))
    stop = np.iinfo(np.int64).max if end is None else end
    if rank is not None:
        start, stop = max(min(start, rank), -rank), max(min(stop, rank), -rank)
    return [b.op("Slice", whole, b.ints(start), b.ints(stop), b.ints(0))]


def split_18(b: Builder) -> list[ir.Value | None] | None:
    """Replace num_outputs by explicit sizes: ceil(size / n) each, the last one smaller if needed."""
    count = b.attr("num_outputs")
    if count is None:
        return None
    x, axis = b.need(0), b.attr("axis", 0)
    shape = b.values.dims(x)
    size = shape[axis] if shape is not None else None
    b.set_attr(num_outputs=None)
    if isinstance(size, int):
        piece = -(-size // count)
        if size % count:
            b.set_inputs([x, b.ints(*[piece] * (count - 1), size - piece * (count - 1))])
        return None
    length = b.op("Gather", b.op("Shape", x), b.ints(axis))
    most = b.op("Div", b.op("Add", length, b.ints(count - 1)), b.ints(count))
    last = b.op("Sub", length, b.op("Mul", most, b.ints(count - 1)))
    b.set_inputs([x, b.op("Concat", *[most] * (count - 1), last, axis=0)])
    return None


def split_13(b: Builder) -> list[ir.Value | None] | None:
    """Move constant sizes to the attribute split. For sizes that are computed at run time, write a Slice each."""
    sizes = b.input(1)
    if sizes is None:
        return None
    known = b.values.constant(sizes)
    if known is not None:
        b.set_attr(split=b.whole_numbers(known, "its sizes"))
        b.set_inputs([b.need(0)])
        return None
    axis, start = b.attr("axis", 0), b.ints(0)
    pieces: list[ir.Value | None] = []
    for i in range(len(b.node.outputs)):
        stop = b.op("Add", start, b.op("Slice", sizes, b.ints(i), b.ints(i + 1)))
        pieces.append(b.op("Slice", b.need(0), start, stop, b.ints(axis)))
        start = stop
    return pieces


def pad_18(b: Builder) -> list[ir.Value | None] | None:
    """Extend the pads of the dimensions in the input axes to pads of all dimensions."""
    axes = b.input(3)
    if axes is None:
        return None
    b.set_inputs([b.need(0), _all_pads(b, axes, b.need(1), b.need_rank(b.need(0))), b.input(2)])
    return None


def _all_pads(b: Builder, axes: ir.Value, pads: ir.Value, rank: int) -> ir.Value:
    known, amounts = b.values.constant(axes), b.values.constant(pads)
    if known is None:
        positive = b.from_start(b.op("Reshape", b.cast(axes, T.INT64), b.ints(1, -1)), rank)
        hits = b.cast(b.op("Equal", b.const(np.arange(rank, dtype=np.int64).reshape(rank, 1)), positive), T.INT64)
        both = b.op("Reshape", b.cast(pads, T.INT64), b.ints(2, 1, -1))
        spread = b.op("ReduceSum", b.op("Mul", both, hits), b.ints(2), keepdims=0, version=13)  # [2, rank]
        return b.op("Reshape", spread, b.ints(2 * rank))
    listed = [a % rank for a in b.whole_numbers(known, "its axes")]
    # The position of each dimension's amount in the input pads; one past their end is a zero.
    index = [2 * len(listed)] * (2 * rank)
    for i, a in enumerate(listed):
        index[a], index[rank + a] = i, len(listed) + i
    if amounts is not None:
        return b.ints(*[int(amounts[i]) if i < 2 * len(listed) else 0 for i in index])
    return b.op("Gather", b.op("Concat", b.cast(pads, T.INT64), b.ints(0), axis=0), b.ints(*index))


def pad_19(b: Builder) -> list[ir.Value | None] | None:
    """Write mode wrap as Gather at positions modulo the size, one dimension after the other; leave other modes."""
    if b.attr("mode", "constant") != "wrap":
        return None
    x, axes = b.need(0), b.input(3)
    rank = b.need_rank(x)
    amounts = b.cast(b.need(1), T.INT64)
    listed = range(rank) if axes is None else b.whole_numbers(b.need_constant(axes, "its axes"), "its axes")
    for i, axis in enumerate(a % rank for a in listed):
        before, after = (b.op("Gather", amounts, b.scalar(at)) for at in (i, len(listed) + i))
        size = b.op("Squeeze", b.dim(x, axis), b.ints(0))
        positions = b.op("Range", b.op("Neg", before), b.op("Add", size, after), b.scalar(1))
        x = b.op("Gather", x, b.op("Mod", positions, size), axis=axis)
    return [x]


def constant_of_shape_20(b: Builder) -> list[ir.Value | None] | None:
    """Fill with FP32 and cast, for the types of fill values that the older version lacks; leave other nodes."""
    value = b.node.attributes.get("value")
    tensor = value.as_tensor() if value is not None else None
    lacking = (T.BFLOAT16, T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ)
    if tensor is None or tensor.dtype.value not in lacking:
        return None
    fill = np.asarray(tensor.numpy()).astype(np.float32).reshape(1)
    filled = b.op("ConstantOfShape", b.need(0), version=9, value=ir.AttrTensor("value", ir.tensor(fill)))
    return [b.cast(filled, tensor.dtype.value)]


STEPS: Steps = {
    ("Squeeze", 13): squeeze_13,
    ("Unsqueeze", 13): unsqueeze_13,
    ("Reshape", 14): reshape_14,
    ("Shape", 15): shape_15,
    ("Split", 18): split_18,
    ("Split", 13): split_13,
    ("Pad", 18): pad_18,
    ("Pad", 19): pad_19,
    ("ConstantOfShape", 20): constant_of_shape_20,
}
