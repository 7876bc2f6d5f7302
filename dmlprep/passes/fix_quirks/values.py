"""Rewrites of casts, clips, reductions and what activations follow."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.passes.fix_quirks.editing import Edit
from dmlprep.passes.fix_quirks.products import squeeze, unsqueeze
from dmlprep.targets.facts import NodeFacts
from dmlprep.targets.quirks.failing import fused_activation

__all__ = [
    "cast_bool",
    "clip_crossed",
    "empty_reduction",
    "fast_gelu",
    "gelu_decomposed",
    "mvn_before_activation",
]


def mvn_before_activation(facts: NodeFacts, edit: Edit) -> str:
    """The activation runs on the same data with a leading dimension of 1, which the fusion does not look through."""
    activation = fused_activation(facts)
    old = edit.node.outputs[0]
    uses = list(old.uses())
    if activation is None or len(uses) != 1:
        return "its activation is not there"
    if not facts.has("axes"):
        edit.set("axes", [0, 2, 3])  # the default; onnx's checker does not infer the form without it
    reader, _ = uses[0]
    after = Edit(edit.graph, reader, edit.taken)
    lifted = unsqueeze(after, old, 0, facts.opset)
    result = reader.outputs[0]
    twin = after.before(reader.op_type, [lifted], like=result)
    made = twin.producer()
    assert made is not None
    for name, attribute in reader.attributes.items():
        made.attributes[name] = attribute
    after.replace_output(squeeze(after, twin, 0, facts.opset))
    after.remove()
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
    """erf + 1 as erf - (-1), or tanh + 1 as tanh - (-1): the same number, and no pattern that ONNX Runtime fuses.

    The node is the Erf or the Tanh; its reader is the Add.
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


def fast_gelu(facts: NodeFacts, edit: Edit) -> str:
    """0.5 x (1 + tanh(0.79788 (x + 0.044715 x^3))), written so that ONNX Runtime does not fuse it again."""
    data, bias = edit.node.inputs[0], edit.node.inputs[1] if len(edit.node.inputs) > 1 else None
    kind, old = facts.input(0), edit.node.outputs[0]
    if data is None or kind is None:
        return "its input is missing"
    dtype = ir.DataType[kind.type.upper()].numpy()

    def made(op: str, left: ir.Value, right: ir.Value | float, what: str) -> ir.Value:
        operand = edit.constant(np.array(right, dtype), what) if isinstance(right, float) else right
        return edit.before(op, [left, operand], like=old)

    x = data if bias is None else made("Add", data, bias, "bias")
    cube = made("Mul", made("Mul", x, x, "square"), x, "cube")
    inner = made("Mul", made("Add", x, made("Mul", cube, 0.044715, "cubic"), "inner"), (2 / np.pi) ** 0.5, "scale")
    gate = made("Sub", edit.before("Tanh", [inner], like=old), -1.0, "minus_one")
    edit.replace_output(made("Mul", made("Mul", x, 0.5, "half"), gate, "gate"))
    edit.remove()
    return ""
