"""Rewrites of QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.passes.fix_quirks.editing import Edit
from dmlprep.targets.facts import NodeFacts
from dmlprep.targets.quirks.failing import per_axis

__all__ = [
    "dequantize_axis_omitted",
    "dynamic_quantize",
    "idle_clip",
    "quantize_axis",
    "quantize_zero_point",
    "quantized_unary",
]

_WHOLE = {"int8", "uint8", "int16", "uint16", "int32"}
_EXACT = {"int8", "uint8", "int16", "uint16"}
"""Types whose differences are exact in FP32."""


def quantize_axis(facts: NodeFacts, edit: Edit) -> str:
    """Write the arithmetic of the operator, in FP32, as ONNX defines it.

    A Transpose to the last axis, which the kernel does right, is no way: ONNX Runtime's optimizer takes it back.
    """
    axis, x = per_axis(facts), facts.input(0)
    if axis is None or x is None or x.rank is None:
        return "its axis or rank is not known"
    return (
        _quantize(facts, edit, axis, x.rank) if facts.op == "QuantizeLinear" else _dequantize(facts, edit, axis, x.rank)
    )


def _along(edit: Edit, value: ir.Value, kind: str, axis: int, rank: int) -> ir.Value:
    """A vector in FP32, shaped so that it is broadcast along ``axis``."""
    single = _single(edit, value, kind)
    trailing = rank - axis - 1
    if not trailing:
        return single
    return edit.before("Reshape", [single, edit.integers([-1] + [1] * trailing, "along")], dtype=ir.DataType.FLOAT)


def _single(edit: Edit, value: ir.Value, kind: str) -> ir.Value:
    return (
        value
        if kind == "float"
        else edit.before("Cast", [value], {"to": int(ir.DataType.FLOAT)}, dtype=ir.DataType.FLOAT)
    )


def _dequantize(facts: NodeFacts, edit: Edit, axis: int, rank: int) -> str:
    """(x - zero point) * scale."""
    x, scale, zero = facts.input(0), facts.input(1), facts.input(2)
    out = facts.output()
    data, factor = edit.node.inputs[:2]
    if x is None or scale is None or out is None or data is None or factor is None:
        return "an input is missing"
    if x.type not in _WHOLE or (zero is not None and x.type not in _EXACT):
        return f"{x.type} has no exact form in FP32"
    old = edit.node.outputs[0]
    value = _single(edit, data, x.type)
    if zero is not None and edit.node.inputs[2] is not None:
        shift = _along(edit, edit.node.inputs[2], zero.type, axis, rank)
        value = edit.before("Sub", [value, shift], dtype=ir.DataType.FLOAT)
    value = edit.before("Mul", [value, _along(edit, factor, scale.type, axis, rank)], dtype=ir.DataType.FLOAT)
    if out.type == "float16":
        value = edit.before("Cast", [value], {"to": int(ir.DataType.FLOAT16)}, like=old)
    edit.replace_output(value)
    edit.remove()
    return ""


def _quantize(facts: NodeFacts, edit: Edit, axis: int, rank: int) -> str:
    """saturate(round(x / scale) + zero point), rounded to nearest even."""
    x, scale, zero, out = facts.input(0), facts.input(1), facts.input(2), facts.output()
    data, factor = edit.node.inputs[:2]
    if x is None or scale is None or out is None or data is None or factor is None:
        return "an input is missing"
    if out.type not in _EXACT or x.type not in ("float", "float16"):
        return f"{x.type} to {out.type} has no exact form in FP32"
    if facts.opset >= 22:
        return "DirectML has no kernel for Round at this opset: lower it to 21"
    old = edit.node.outputs[0]
    limits = np.iinfo(ir.DataType[out.type.upper()].numpy())
    single = ir.DataType.FLOAT
    value = edit.before(
        "Div", [_single(edit, data, x.type), _along(edit, factor, scale.type, axis, rank)], dtype=single
    )
    value = edit.before("Round", [value], dtype=single)
    if zero is not None and edit.node.inputs[2] is not None:
        value = edit.before("Add", [value, _along(edit, edit.node.inputs[2], zero.type, axis, rank)], dtype=single)
    low = edit.constant(np.array(limits.min, np.float32), "lowest")
    high = edit.constant(np.array(limits.max, np.float32), "highest")
    value = edit.before("Clip", [value, low, high], dtype=single)
    edit.replace_output(edit.before("Cast", [value], {"to": int(ir.DataType[out.type.upper()])}, like=old))
    edit.remove()
    return ""


def dequantize_axis_omitted(facts: NodeFacts, edit: Edit) -> str:
    """One scale for the whole tensor, said as a scalar; the axis of a vector where the scale is computed."""
    arrays = [v.array() if v is not None else None for v in facts.inputs[1:3]]
    given = [v for v in facts.inputs[1:3] if v is not None]
    if any(a is None for a in arrays[: len(given)]):
        edit.set("axis", 0)
        return ""
    for index, array in enumerate(arrays, 1):
        if array is not None:
            edit.set_input(index, edit.constant(array.reshape(()), "scale" if index == 1 else "zero_point"))
    return ""


def quantize_zero_point(facts: NodeFacts, edit: Edit) -> str:
    """The zero point that is meant: 0, uint8 for QuantizeLinear, the data's type for DequantizeLinear."""
    x, scale = facts.input(0), facts.input(1)
    if x is None or scale is None or scale.shape is None or not scale.static or not x.type:
        return "the shape of its scale is not known"
    kind = "UINT8" if facts.op == "QuantizeLinear" else x.type.upper()
    zeros = np.zeros([d for d in scale.shape if isinstance(d, int)], ir.DataType[kind].numpy())
    edit.set_input(2, edit.constant(zeros, "zero_point"))
    return ""


def idle_clip(facts: NodeFacts, edit: Edit) -> str:
    """Without the Relu or Clip: what it cuts off saturates to the same integer."""
    (clip, _), *_ = edit.node.outputs[0].uses()
    (reader, index), *_ = clip.outputs[0].uses()
    reader.replace_input_with(index, edit.node.outputs[0])
    edit.graph.remove(clip, safe=True)
    return ""


def quantized_unary(facts: NodeFacts, edit: Edit) -> str:
    """A Sum of the data alone before it, which ONNX Runtime neither takes out nor looks through."""
    data = edit.node.inputs[0]
    if data is None:
        return "it has no data"
    edit.set_input(0, edit.before("Sum", [data], like=data))
    return ""


def dynamic_quantize(facts: NodeFacts, edit: Edit) -> str:
    """The function that ONNX gives for it, with ONNX Runtime's scale of 1 for a tensor of zeros.

    The range holds 0; scale = (max - min) / 255; the zero point is -min in steps of the scale.
    """
    x = facts.input(0)
    data = edit.node.inputs[0]
    if x is None or x.type != "float" or data is None:
        return "its input is not FP32"
    if facts.opset >= 23:
        return "DirectML has no kernel for QuantizeLinear at this opset: lower it to 21"
    single = ir.DataType.FLOAT
    zero = edit.constant(np.zeros((), np.float32), "zero")
    ends = [
        edit.before(bound, [edit.before(f"Reduce{bound}", [data], {"keepdims": 0}, dtype=single), zero], dtype=single)
        for bound in ("Min", "Max")
    ]
    span = edit.before("Sub", [ends[1], ends[0]], dtype=single)
    steps = edit.constant(np.array(255, np.float32), "steps")
    one = edit.constant(np.ones((), np.float32), "one")
    empty = edit.before("Equal", [span, zero], dtype=ir.DataType.BOOL)
    scale = edit.before("Where", [empty, one, edit.before("Div", [span, steps], dtype=single)], dtype=single)
    byte = edit.constant(np.zeros((), np.uint8), "origin")
    below = edit.before("Neg", [ends[0]], dtype=single)
    point = edit.before("QuantizeLinear", [below, scale, byte], dtype=ir.DataType.UINT8)
    result = edit.before("QuantizeLinear", [data, scale, point], like=edit.node.outputs[0])
    for index, value in enumerate((result, scale, point)):
        if index < len(edit.node.outputs):
            edit.replace_output(value, index)
    edit.remove()
    return ""
