"""DynamicQuantizeLinear, which DirectML rounds differently."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    return node.op


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the function that ONNX gives for it, with ONNX Runtime's scale of 1 for a tensor of zeros.

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


QUIRK = Quirk(
    id="dynamic-quantize",
    code="DP632",
    title="DynamicQuantizeLinear rounds differently",
    severity="note",
    ops=("DynamicQuantizeLinear",),
    outcome="wrong numbers",
    sources=(MEASURED, "onnx_backend_test_series_filters.jsonc (dynamicquantizelinear)"),
    matches=_matches,
    rewrite=_rewrite,
)
