"""QLinearMatMul whose scales are FP16."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk


def _matches(node: NodeFacts) -> str:
    half = [v.name for v in map(node.input, (1, 4, 6)) if v is not None and v.type == "float16"]
    return f"FP16 scales {', '.join(half)}" if half else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Cast the scales to FP32, which changes no value."""
    for index in (1, 4, 6):
        if facts.required(index).type == "float16":
            edit.set_input(index, edit.cast(edit.input(index), ir.DataType.FLOAT))
    return ""


QUIRK = Quirk(
    id="qlinearmatmul-half",
    code="DP618",
    title="QLinearMatMul with FP16 scales",
    ops=("QLinearMatMul",),
    outcome="create fails",
    first="1.21",
    matches=_matches,
    rewrite=_rewrite,
)
