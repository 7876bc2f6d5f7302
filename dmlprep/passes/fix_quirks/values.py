"""Rewrites of quantization, casts, clips, reductions and GELU."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.passes.fix_quirks.editing import Edit
from dmlprep.target.facts import NodeFacts
from dmlprep.target.quirks.failing import per_axis

__all__ = [
    "cast_bool",
    "clip_crossed",
    "dequantize_axis_omitted",
    "empty_reduction",
    "gelu_decomposed",
    "mvn_without_axes",
    "quantize_axis",
    "quantize_zero_point",
]


def mvn_without_axes(facts: NodeFacts, edit: Edit) -> str:
    """The default, written."""
    edit.set("axes", [0, 2, 3])
    return ""


def quantize_axis(facts: NodeFacts, edit: Edit) -> str:
    """The axis goes to the end and comes back: the last axis is right."""
    axis, x = per_axis(facts), facts.input(0)
    if axis is None or x is None or x.rank is None:
        return "its axis or rank is not known"
    data, old = edit.node.inputs[0], edit.node.outputs[0]
    assert data is not None
    last = x.rank - 1
    there = [i for i in range(x.rank) if i != axis] + [axis]
    back = [there.index(i) for i in range(x.rank)]
    moved = edit.before("Transpose", [data], {"perm": there}, like=data)
    inner = edit.before(facts.op, [moved, *edit.node.inputs[1:]], like=old)
    made = inner.producer()
    assert made is not None
    for name, attribute in edit.node.attributes.items():
        made.attributes[name] = attribute
    made.attributes["axis"] = ir.AttrInt64("axis", last)
    edit.replace_output(edit.before("Transpose", [inner], {"perm": back}, like=old))
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


def cast_bool(facts: NodeFacts, edit: Edit) -> str:
    """True is what differs from zero, NaN included."""
    x = facts.input(0)
    if x is None or x.type not in ("float", "float16", "int64", "uint64"):
        return f"DirectML does not compare {x.type if x is not None else 'nothing'}"
    if facts.opset < 11 and x.type != "int64":
        return f"Equal does not compare {x.type} at opset {facts.opset}"
    data, old = edit.node.inputs[0], edit.node.outputs[0]
    assert data is not None
    zero = edit.constant(np.zeros((), ir.DataType[x.type.upper()].numpy()), "zero")
    equal = edit.before("Equal", [data, zero], dtype=ir.DataType.BOOL)
    edit.replace_output(edit.before("Not", [equal], like=old))
    edit.remove()
    return ""


def clip_crossed(facts: NodeFacts, edit: Edit) -> str:
    """min first, then max: every element becomes max."""
    data, low, high = edit.node.inputs[:3]
    old = edit.node.outputs[0]
    if data is None or low is None or high is None:
        return "a bound is missing"
    raised = edit.before("Max", [data, low], like=data)
    edit.replace_output(edit.before("Min", [raised, high], like=old))
    edit.remove()
    return ""


_NEUTRAL = {
    "ReduceSum": 0.0,
    "ReduceSumSquare": 0.0,
    "ReduceL1": 0.0,
    "ReduceL2": 0.0,
    "ReduceProd": 1.0,
    "ReduceLogSum": -np.inf,
    "ReduceLogSumExp": -np.inf,
}


def empty_reduction(facts: NodeFacts, edit: Edit) -> str:
    """The neutral element, where ONNX defines one."""
    out = facts.output()
    if facts.op not in _NEUTRAL:
        return f"{facts.op} of nothing is not defined"
    if out is None or out.shape is None or not out.static or not out.type:
        return "the sizes of its output are not known"
    dtype = ir.DataType[out.type.upper()].numpy()
    if not np.isfinite(_NEUTRAL[facts.op]) and dtype.kind not in "f":
        return "minus infinity is no integer"
    array = np.full([d for d in out.shape if isinstance(d, int)], _NEUTRAL[facts.op], dtype)
    edit.replace_output(edit.constant(array, "neutral"))
    edit.remove()
    return ""


def gelu_decomposed(facts: NodeFacts, edit: Edit) -> str:
    """erf + 1 as erf - (-1): the same number, and no pattern that ONNX Runtime fuses.

    The node is the Erf; its reader is the Add.
    """
    (reader, _), *_ = edit.node.outputs[0].uses()
    one = next((v for v in reader.inputs if v is not None and v is not edit.node.outputs[0]), None)
    if reader.op_type != "Add" or one is None:
        return "its Add is not there"
    anchor = Edit(edit.graph, reader, edit.taken)
    kind = facts.input(0)
    dtype = ir.DataType[kind.type.upper()].numpy() if kind is not None else np.dtype(np.float32)
    minus = anchor.constant(np.array(-1.0, dtype), "minus_one")
    result = anchor.before("Sub", [edit.node.outputs[0], minus], like=reader.outputs[0])
    anchor.replace_output(result)
    anchor.remove()
    return ""
