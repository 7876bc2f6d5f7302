"""Cast to bool: numbers near 0, and integers of 64 bits, become false."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    x, out = node.input(0), node.output()
    if x is None or out is None or out.type != "bool" or x.type in ("bool", ""):
        return ""
    risky = x.type in ("float", "float16", "double", "int64", "uint64")
    return f"{x.type} to bool" if risky else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write Not(Equal(x, 0)): every value that differs from zero is true, NaN included."""
    x = facts.input(0)
    if x is None or x.type not in ("float", "float16", "int64", "uint64"):
        return f"DirectML does not compare {x.type if x is not None else 'nothing'}"
    if facts.opset < 11 and x.type != "int64":
        return f"Equal does not compare {x.type} at opset {facts.opset}"
    data, old = edit.node.inputs[0], edit.node.outputs[0]
    assert data is not None
    zero = edit.constant(np.zeros((), ir.DataType[x.type.upper()].numpy()), "zero")
    equal = edit.before("Equal", [data, zero], dtype=ir.DataType.BOOL)
    return edit.become(edit.before("Not", [equal], like=old))


QUIRK = Quirk(
    id="cast-bool",
    code="DP629",
    title="Cast to bool",
    severity="warning",
    ops=("Cast",),
    outcome="wrong numbers",
    sources=(MEASURED,),
    matches=_matches,
    rewrite=_rewrite,
)
