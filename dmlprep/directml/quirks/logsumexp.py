"""ReduceLogSumExp of numbers beyond the range of exp."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.declaring import MEASURED, Edit, Match, NodeFacts, Quirk


def _matches(node: NodeFacts) -> str | Match:
    data = node.input(0)
    if data is None or data.dtype is None or data.numpy_type.kind != "f":
        return ""
    shift = data.producer.input(1) if data.producer is not None and data.producer.op == "Sub" else None
    if shift is not None and shift.producer is not None and shift.producer.op in ("Clip", "ReduceMax"):
        return ""  # it subtracts its maximum
    return Match("its data might be beyond the range of exp (88 in FP32)", sure=False)


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write m + ReduceLogSumExp(x - m), where m is the maximum of x as a finite number.

    Elements of x - m are at most 0, and one is 0: no sum of their exponentials overflows or is 0.
    """
    if 0 in facts.required().sizes:
        return "its data are empty"
    axes = edit.node.inputs[1:]
    reduction: dict[str, ir.Attr | int] = {**edit.node.attributes, "keepdims": 1}
    most = edit.before("ReduceMax", [edit.input(), *axes], reduction, like=edit.input())
    limit = np.finfo(facts.required().numpy_type).max
    if facts.opset < 11:
        most = edit.before("Clip", [most], {"min": float(-limit), "max": float(limit)}, like=most)
    else:
        most = edit.before("Clip", [most, edit.constant(-limit, "least"), edit.constant(limit, "most")], like=most)
    shifted = edit.before("Sub", [edit.input(), most], like=edit.input())
    result = edit.before("Add", [edit.before(facts.op, [shifted, *axes], reduction, like=most), most], like=most)
    if not facts.attribute("keepdims", 1):
        result = edit.before("ReduceMax", [result, *axes], edit.node.attributes, like=edit.output)
    return edit.become(result)


QUIRK = Quirk(
    id="logsumexp-range",
    code="DP694",
    title="ReduceLogSumExp of numbers beyond the range of exp",
    ops=("ReduceLogSumExp",),
    outcome="wrong numbers",
    sources=(MEASURED, "https://github.com/microsoft/onnxruntime/issues/29099"),
    matches=_matches,
    rewrite=_rewrite,
)
