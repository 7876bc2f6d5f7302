"""QLinearMatMul whose scales are FP16."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    scales = (node.input(1), node.input(4), node.input(6))
    half = [v.name for v in scales if v is not None and v.type == "float16"]
    return f"FP16 scales {', '.join(half)}" if half else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Cast the scales to FP32, which changes no value."""
    for index in (1, 4, 6):
        value, scale = edit.node.inputs[index], facts.input(index)
        if value is not None and scale is not None and scale.type == "float16":
            wide = edit.before("Cast", [value], {"to": int(ir.DataType.FLOAT)}, dtype=ir.DataType.FLOAT)
            edit.set_input(index, wide)
    return ""


QUIRK = Quirk(
    id="qlinearmatmul-half",
    code="DP618",
    title="QLinearMatMul with FP16 scales",
    ops=("QLinearMatMul",),
    outcome="create fails",
    first="1.21",
    sources=(MEASURED,),
    matches=_matches,
    rewrite=_rewrite,
)
