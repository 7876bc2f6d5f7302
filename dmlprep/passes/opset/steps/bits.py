"""Lower operators on the bits of integers: BitShift, the bitwise operators of opset 18, BitCast."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from dmlprep.passes.opset.build import Builder, CannotLower, Step, Steps, T

_SIGNED = {T.INT8, T.INT16, T.INT32, T.INT64}
_UNSIGNED = {T.UINT8, T.UINT16, T.UINT32, T.UINT64}
_WIDTH: dict[int, int] = {kind: ir.DataType(kind).bitwidth for kind in _SIGNED | _UNSIGNED}


def bit_shift_28(b: Builder) -> list[ir.Value | None] | None:
    """Write arithmetic for shifts of signed numbers and by amounts that may exceed the type's width; leave others."""
    x, y = b.need(0), b.need(1)
    dtype = b.need_dtype(x)
    width = _WIDTH[dtype]
    amount = b.values.constant(y)
    inside = amount is not None and bool(np.all((amount >= 0) & (amount < width)))
    if dtype not in _SIGNED and inside:
        return None
    right = b.attr("direction") == "RIGHT"
    shifts = b.cast(y, T.INT64)
    zero = b.scalar(0)
    if dtype not in _SIGNED:
        fits = b.op("And", b.op("Not", b.op("Less", shifts, zero)), b.op("Less", shifts, b.scalar(width)))
        (moved,) = b.again(x, b.cast(b.op("Where", fits, shifts, zero), dtype), version=11)
        if dtype in (T.UINT16, T.UINT64):  # ONNX Runtime has no Where for these types on the CPU
            return [b.cast(b.op("Where", fits, b.cast(moved, T.INT64), zero), dtype)]
        return [b.op("Where", fits, moved, b.like(0, x))]
    wide = b.cast(x, T.INT64)
    last = width - 2 if right else width - 1
    fits = b.op("And", b.op("Not", b.op("Less", shifts, zero)), b.op("Less", shifts, b.scalar(last + 1)))
    powers = b.const(np.array([1 << i for i in range(last + 1)], np.uint64).astype(np.int64))
    power = b.op("Gather", powers, b.op("Where", fits, shifts, zero))
    if not right:
        return [b.cast(b.op("Where", fits, b.op("Mul", wide, power), zero), dtype)]
    # Rounding toward minus infinity is the arithmetic shift; Mod has the divisor's sign.
    moved = b.op("Div", b.op("Sub", wide, b.op("Mod", wide, power)), power)
    fill = b.op("Where", b.op("Less", wide, zero), b.scalar(-1), zero)
    return [b.cast(b.op("Where", fits, moved, fill), dtype)]


def _bits(b: Builder, x: ir.Value, count: int) -> tuple[ir.Value, ir.Value]:
    """Split an int64 value [...] into its low ``count`` bits, int64[..., count] of 0 and 1, and its sign.

    The sign is bool[...], true for negative numbers.
    """
    negative = b.op("Less", x, b.scalar(0))
    low = b.op("Where", negative, _lifted(b, "Add", "Sub", x, count), x)
    powers = b.const(np.array([1 << i for i in range(count)], np.int64))
    return b.op("Mod", b.op("Div", b.op("Unsqueeze", low, b.ints(-1)), powers), b.scalar(2)), negative


def _lifted(b: Builder, op: str, inverse: str, x: ir.Value, count: int) -> ir.Value:
    """Add 2^count to ``x`` or subtract it, as ``op`` says ("Add", "Sub").

    2^63 does not fit into int64, so ``inverse``, the other operator, is applied to -2^63.
    """
    return b.op(op, x, b.scalar(1 << count)) if count < 63 else b.op(inverse, x, b.scalar(-(2**63)))


def _bitwise(combine: Callable[[Builder, ir.Value, ir.Value], ir.Value]) -> Step:
    def step(b: Builder) -> list[ir.Value | None]:
        dtype = b.need_dtype(b.need(0))
        count = min(_WIDTH[dtype], 63)
        one = b.scalar(1)
        lhs, lhs_negative = _bits(b, b.cast(b.need(0), T.INT64), count)
        rhs, rhs_negative = _bits(b, b.cast(b.need(1), T.INT64), count)
        bits = b.cast(combine(b, b.op("Equal", lhs, one), b.op("Equal", rhs, one)), T.INT64)
        powers = b.const(np.array([1 << i for i in range(count)], np.int64))
        total = b.op("ReduceSum", b.op("Mul", bits, powers), b.ints(-1), keepdims=0, version=13)
        negative = combine(b, lhs_negative, rhs_negative)
        return [b.cast(b.op("Where", negative, _lifted(b, "Sub", "Add", total, count), total), dtype)]

    return step


def bitwise_not_18(b: Builder) -> list[ir.Value | None]:
    """Write BitwiseNot as -1 - x, which is the same in two's complement."""
    x = b.need(0)
    return [b.cast(b.op("Sub", b.scalar(-1), b.cast(x, T.INT64)), b.need_dtype(x))]


def bit_cast_26(b: Builder) -> list[ir.Value | None]:
    """Write a Cast between integer types of equal width, which keeps the bits; reinterpret constants of any type.

    Raises:
        CannotLower: the types are others.
    """
    x, to = b.need(0), b.attr("to")
    dtype = b.need_dtype(x)
    known = b.values.constant(x)
    if known is not None and known.dtype.itemsize * 8 >= 8:
        return [b.const(known.view(ir.DataType(to).numpy()))]
    if dtype == to:
        return [b.op("Identity", x)]
    if to in _WIDTH and _WIDTH[to] == (8 if dtype == T.BOOL else _WIDTH.get(dtype)):
        return [b.op("Cast", x, to=to)]
    names = T.DataType.Name(dtype), T.DataType.Name(to)
    raise CannotLower(f"no older operator reads the bits of {names[0]} as {names[1]}")


STEPS: Steps = {
    ("BitShift", 28): bit_shift_28,
    ("BitwiseAnd", 18): _bitwise(lambda b, x, y: b.op("And", x, y)),
    ("BitwiseOr", 18): _bitwise(lambda b, x, y: b.op("Or", x, y)),
    ("BitwiseXor", 18): _bitwise(lambda b, x, y: b.op("Xor", x, y)),
    ("BitwiseNot", 18): bitwise_not_18,
    ("BitCast", 26): bit_cast_26,
}
