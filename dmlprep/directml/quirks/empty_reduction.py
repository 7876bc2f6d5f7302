"""A reduction of an empty tensor whose result is not empty."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts

_NEUTRAL = {
    "ReduceSum": 0.0,
    "ReduceSumSquare": 0.0,
    "ReduceL1": 0.0,
    "ReduceL2": 0.0,
    "ReduceProd": 1.0,
    "ReduceLogSum": -np.inf,
    "ReduceLogSumExp": -np.inf,
}


def _matches(node: NodeFacts) -> str:
    x, out = node.input(0), node.output()
    if x is None or out is None or x.size != 0 or out.size == 0:
        return ""
    return f"{x.name} of shape {list(x.shape or ())} is empty, the result is not"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the neutral element, where ONNX defines one."""
    out = facts.output()
    if facts.op not in _NEUTRAL:
        return f"{facts.op} of an empty tensor is not defined"
    if out is None or out.shape is None or not out.static or not out.type:
        return "the sizes of its output are not known"
    dtype = ir.DataType[out.type.upper()].numpy()
    if not np.isfinite(_NEUTRAL[facts.op]) and dtype.kind not in "f":
        return "minus infinity is no integer"
    edit.room(out.sizes, dtype.itemsize, "what it computes")
    array = np.full(out.sizes, _NEUTRAL[facts.op], dtype)
    return edit.become(edit.constant(array, "neutral"))


QUIRK = Quirk(
    id="empty-reduction",
    code="DP624",
    title="reduction of an empty tensor",
    ops=(
        "ReduceSum",
        "ReduceProd",
        "ReduceMax",
        "ReduceMin",
        "ReduceMean",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceSumSquare",
    ),
    outcome="wrong numbers",
    sources=(MEASURED, "onnx_backend_test_series_filters.jsonc (reduce_*_empty_set)"),
    matches=_matches,
    rewrite=_rewrite,
)
