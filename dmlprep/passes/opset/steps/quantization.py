"""Lower QuantizeLinear and DequantizeLinear: newer types, blocks and precisions become arithmetic."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.graph.analysis.schemas import rejects, schema_at
from dmlprep.passes.opset.build import Builder, CannotLower, Steps, T

_RANGES: dict[int, tuple[int, int]] = {
    T.UINT8: (0, 255),
    T.INT8: (-128, 127),
    T.UINT16: (0, 65535),
    T.INT16: (-32768, 32767),
    T.UINT4: (0, 15),
    T.INT4: (-8, 7),
    T.UINT2: (0, 3),
    T.INT2: (-2, 1),
}
_FLOATS = {T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16}


def _fits(b: Builder, scale: ir.Value) -> bool:
    """Remove attributes without effect from the node, and return whether the version before accepts the node."""
    if not b.attr("block_size", 0):
        b.set_attr(block_size=None)
    if b.values.rank(scale) == 0 and b.version == 13:
        b.set_attr(axis=None)
    schema = schema_at(b.node.op_type, b.version)
    assert schema is not None
    types = [b.values.type(v) for v in b.node.inputs]
    return not rejects(b.node, schema.since_version - 1, types, [b.values.type(v) for v in b.node.outputs])


def _spread(b: Builder, scale: ir.Value, x: ir.Value) -> ir.Value:
    """Reshape a scale or zero point so that it broadcasts against ``x``; values of blocks are repeated.

    ``scale`` has one element, one for each index of the axis [n], or one for each block.
    """
    block, axis, rank, scale_rank = b.attr("block_size", 0), b.attr("axis", 1), b.need_rank(x), b.need_rank(scale)
    if block:
        axis %= rank
        repeated = b.op("Unsqueeze", scale, b.ints(axis + 1))
        repeated = b.op("Expand", repeated, b.ints(*[block if i == axis + 1 else 1 for i in range(rank + 1)]))
        merged = b.op("Mul", b.op("Shape", scale), b.ints(*[block if i == axis else 1 for i in range(rank)]))
        whole = b.op("Reshape", repeated, merged)
        end = b.op("Slice", b.op("Shape", x), b.ints(axis), b.ints(axis + 1), b.ints(0))
        return b.op("Slice", whole, b.ints(0), end, b.ints(axis))
    if scale_rank == 0 or rank <= 1 or b.values.static_shape(scale) == [1]:
        return scale
    return b.op("Reshape", scale, b.ints(*[-1 if i == axis % rank else 1 for i in range(rank)]))


def dequantize(b: Builder) -> list[ir.Value | None] | None:
    """Leave a node that the older version accepts; otherwise write (x - zero point) * scale in FP32 (FP64 stays)."""
    x, scale, zero = b.need(0), b.need(1), b.input(2)
    scale_type = b.need_dtype(scale)
    out = b.attr("output_dtype", 0) or scale_type
    if out == scale_type:
        b.set_attr(output_dtype=None)
    if _fits(b, scale):
        return None
    work = T.DOUBLE if out == T.DOUBLE else T.FLOAT
    y = b.cast(x, work)
    if zero is not None:
        y = b.op("Sub", y, _spread(b, b.cast(zero, work), x))
    y = b.op("Mul", y, _spread(b, b.cast(scale, work), x))
    return [b.cast(y, out)]


def quantize(b: Builder) -> list[ir.Value | None] | None:
    """Leave a node that the older version accepts; otherwise write saturate(round(x / scale) + zero point) in FP32.

    FP64 is computed in FP64.

    Raises:
        CannotLower: a type is unknown, the precision is not floating-point, or arithmetic cannot give the output type.
    """
    x, scale, zero = b.need(0), b.need(1), b.input(2)
    scale_type = b.need_dtype(scale)
    out = b.values.dtype(zero) if zero is not None else b.attr("output_dtype", 0) or T.UINT8
    if not out:
        raise CannotLower(f"the element type of {zero.name if zero else 'its output'!r} is unknown", in_function=True)
    precision = b.attr("precision", 0) or scale_type
    if precision == scale_type:
        b.set_attr(precision=None)
    if zero is not None or out == T.UINT8:
        b.set_attr(output_dtype=None)
    if out in _RANGES:
        b.set_attr(saturate=None)  # it concerns float8 only
    if _fits(b, scale):
        return None
    if precision == T.INT32 or precision not in _FLOATS:
        raise CannotLower("its scale is not a floating-point number")
    work = T.DOUBLE if precision == T.DOUBLE else T.FLOAT
    y = b.op("Div", b.cast(b.cast(x, precision), work), _spread(b, b.cast(b.cast(scale, precision), work), x))
    if precision not in (T.FLOAT, T.DOUBLE):
        y = b.cast(b.cast(y, precision), work)
    if out not in (*_RANGES, T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ, T.FLOAT4E2M1):
        raise CannotLower(f"it quantizes to {T.DataType.Name(out)}")
    if out in _RANGES:
        y = b.op("Round", y)
    if zero is not None:
        y = b.op("Add", y, _spread(b, b.cast(zero, work), x))
    if out not in _RANGES:
        return [b.op("Cast", y, to=out, version=19, saturate=b.attr("saturate", 1))]
    low, high = _RANGES[out]
    y = b.op("Clip", y, b.like(np.float32(low), y), b.like(np.float32(high), y))
    return [b.cast(b.cast(y, T.INT32), out)]


STEPS: Steps = {
    (name, since): step
    for name, step in (("DequantizeLinear", dequantize), ("QuantizeLinear", quantize))
    for since in (13, 19, 21, 23, 24, 25, 28)
}
