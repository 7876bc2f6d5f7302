"""Cast to bool: numbers near 0, and integers of 64 bits, become false."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk


def _matches(node: NodeFacts) -> str:
    x, out = node.input(0), node.output()
    if x is None or out is None or out.type != "bool":
        return ""
    return f"{x.type} to bool" if x.type in ("float", "float16", "double", "int64", "uint64") else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write Not(Equal(x, 0)): every nonzero value is true, and so is NaN."""
    x = facts.required()
    if x.type not in ("float", "float16", "int64", "uint64"):
        return f"DirectML does not compare {x.type}"
    if facts.opset < 11 and x.type != "int64":
        return f"Equal does not compare {x.type} at opset {facts.opset}"
    zero = edit.constant(np.zeros((), x.numpy_type), "zero")
    equal = edit.before("Equal", [edit.input(), zero], dtype=ir.DataType.BOOL)
    return edit.become(edit.before("Not", [equal], like=edit.output))


QUIRK = Quirk(
    id="cast-bool",
    code="DP629",
    title="Cast to bool",
    severity="warning",
    ops=("Cast",),
    outcome="wrong numbers",
    matches=_matches,
    rewrite=_rewrite,
)
