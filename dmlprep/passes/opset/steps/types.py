"""Lower casts, constants, attributes at their defaults, and several operators with newer attributes or types."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.graph.analysis.attributes import constant_tensor
from dmlprep.graph.analysis.schemas import schema_at
from dmlprep.passes.opset.build import Builder, CannotLower, Steps, T, default_of

_FLOAT8 = {T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ, T.FLOAT8E8M0}


def drop_defaults(b: Builder) -> None:
    """Remove attributes that the version before lacks, if they have their default values.

    Raises:
        CannotLower: such an attribute has another value than its default.
    """
    schema = schema_at(b.node.op_type, b.version)
    assert schema is not None
    older = schema_at(b.node.op_type, schema.since_version - 1)
    if older is None:
        return
    for name in [name for name in b.node.attributes if name in schema.attributes and name not in older.attributes]:
        value = b.attr(name)
        if value != default_of(schema, name):
            raise CannotLower(f"attribute {name} = {value!r} does not exist before opset {schema.since_version}")
        b.set_attr(**{name: None})


def cast(b: Builder) -> None:
    """Drop saturate and round_mode, which only concern casts to float8; for float8, drop them only at their defaults.

    Raises:
        CannotLower: a cast to float8 has another value than the default.
    """
    schema = schema_at(b.node.op_type, b.version)
    assert schema is not None
    older = schema_at(b.node.op_type, schema.since_version - 1)
    if older is not None and b.attr("to") not in _FLOAT8:
        b.set_attr(**{name: None for name in ("saturate", "round_mode") if name not in older.attributes})
    drop_defaults(b)


def cast_like(b: Builder) -> list[ir.Value | None] | None:
    """Write a Cast to the second input's type if that is known; otherwise drop attributes at their defaults.

    Raises:
        CannotLower: the type is unknown, and the opset is below 19 or an attribute is not at its default.
    """
    to = b.values.dtype(b.need(1))
    if to:
        saturate = b.attr("saturate") if to in _FLOAT8 else None
        mode = b.attr("round_mode") if to == T.FLOAT8E8M0 else None
        return [b.op("Cast", b.need(0), to=to, saturate=saturate, round_mode=mode, version=b.version)]
    if b.version < 19:
        raise CannotLower(f"the element type of {b.need(1).name!r} is unknown", in_function=True)
    drop_defaults(b)
    return None


def constant_12(b: Builder) -> None:
    """Replace value_int, value_floats and similar attributes by the attribute value, a tensor.

    Raises:
        CannotLower: the value is a parameter of a model-local function.
    """
    held = b.node.attributes
    if any(attr.is_ref() for attr in held.values()):
        raise CannotLower("its value is a parameter of a model-local function", in_function=True)
    tensor = None if "value" in held else constant_tensor(b.node)
    if tensor is not None:
        held.clear()
        held["value"] = ir.AttrTensor("value", tensor)


def arg_12(b: Builder) -> list[ir.Value | None] | None:
    """Write select_last_index = 1 as the first index in the reversed input; otherwise drop the attribute."""
    if not b.attr("select_last_index", 0):
        b.set_attr(select_last_index=None)
        return None
    x, axis = b.need(0), b.attr("axis", 0)
    backwards = b.op("Slice", x, b.ints(-1), b.ints(np.iinfo(np.int64).min), b.ints(axis), b.ints(-1))
    (index,) = b.again(backwards, version=11, select_last_index=None)
    length = b.op("Gather", b.op("Shape", x), b.ints(axis % b.need_rank(x)))
    return [b.op("Sub", b.op("Sub", length, b.scalar(1)), index)]


def dropout_12(b: Builder) -> list[ir.Value | None] | None:
    """Move ratio to the attribute (both versions do nothing at inference); write a used mask as ones.

    Raises:
        CannotLower: training_mode is true or computed at run time.
    """
    training = b.input(2)
    if training is not None and bool(b.need_constant(training, "its training mode").any()):
        raise CannotLower("it drops elements at random (training_mode is true)")
    if b.asked(1):
        # the versions differ in the mask of the elements that are not dropped
        ones = b.op("ConstantOfShape", b.op("Shape", b.need(0)), version=9, value=ir.tensor(np.ones(1, np.float32)))
        return [b.op("Identity", b.need(0)), b.cast(ones, T.BOOL)]
    ratio = b.input(1)
    known = None if ratio is None else b.values.constant(ratio)
    b.set_attr(seed=None, ratio=None if known is None else float(known.reshape(-1)[0]))
    b.set_inputs([b.need(0)])
    return None


def extreme_12(b: Builder) -> list[ir.Value | None] | None:
    """Compare 64-bit integers, which have no wider type, one input after the other; leave nodes of other types."""
    if b.values.dtype(b.need(0)) not in (T.INT64, T.UINT64):
        return None
    best = b.need(0)
    for other in b.node.inputs[1:]:
        assert other is not None
        less = b.op("Less", best, other)
        best = b.op("Where", less, other, best) if b.node.op_type == "Max" else b.op("Where", less, best, other)
    return [b.op("Identity", best)]


def mod_28(b: Builder) -> list[ir.Value | None] | None:
    """Write fmod 0 of floating-point numbers as fmod 1, corrected to the divisor's sign; leave other nodes."""
    if b.attr("fmod", 0) or b.need_dtype(b.need(0)) not in (T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16):
        return None
    x, y = b.need(0), b.need(1)
    (rest,) = b.again(x, y, version=13, fmod=1)
    zero = b.like(0, x)
    apart = b.op("Xor", b.op("Less", rest, zero), b.op("Less", y, zero))
    moved = b.op("And", apart, b.op("Not", b.op("Equal", rest, zero)))
    return [b.op("Where", moved, b.op("Add", rest, y), rest)]


def range_27(b: Builder) -> None:
    """Drop stash_type 1, the default: half precision, which older versions lack, then computes in FP32 by casts."""
    if b.attr("stash_type", 1) == 1:
        b.set_attr(stash_type=None)
    drop_defaults(b)


def space_to_depth_28(b: Builder) -> list[ir.Value | None] | None:
    """Write mode CRD as the default mode DCR and a transpose of its channels; otherwise drop the attribute."""
    if b.attr("mode", "DCR") == "DCR":
        b.set_attr(mode=None)
        return None
    x, size = b.need(0), b.attr("blocksize")
    (dcr,) = b.again(x, version=13, mode=None)  # [N, size * size * C, H, W]
    shape = b.op("Shape", dcr)
    split = b.op("Concat", b.dim(dcr, 0), b.ints(size * size), b.dim(x, 1), b.ints(-1), axis=0)
    return [b.op("Reshape", b.op("Transpose", b.op("Reshape", dcr, split), perm=[0, 2, 1, 3]), shape)]


def has_element_18(b: Builder) -> list[ir.Value | None] | None:
    """Write a constant: false without an input, true for a tensor or a sequence; leave a node on an optional."""
    x = b.input(0)
    return None if x is not None and _may_be_optional(b, x) else [b.const(np.array(x is not None))]


def get_element_18(b: Builder) -> list[ir.Value | None] | None:
    """Write an Identity if the input is a tensor or a sequence; leave a node on an optional."""
    return None if _may_be_optional(b, b.need(0)) else [b.op("Identity", b.need(0))]


def _may_be_optional(b: Builder, x: ir.Value) -> bool:
    known = b.values.type(x)
    return known is None or known.WhichOneof("value") == "optional_type"


STEPS: Steps = {
    **{("Cast", since): cast for since in (13, 19, 21, 23, 24, 25, 28)},
    **{("CastLike", since): cast_like for since in (15, 19, 21, 23, 24, 25)},
    ("Constant", 12): constant_12,
    ("Attention", 25): drop_defaults,
    ("ArgMax", 12): arg_12,
    ("ArgMin", 12): arg_12,
    ("Dropout", 12): dropout_12,
    ("GatherND", 12): drop_defaults,
    ("Max", 12): extreme_12,
    ("Min", 12): extreme_12,
    ("Mod", 28): mod_28,
    ("Range", 27): range_27,
    ("SpaceToDepth", 28): space_to_depth_28,
    ("OptionalHasElement", 18): has_element_18,
    ("OptionalGetElement", 18): get_element_18,
}
