"""DynamicQuantizeLinear, which DirectML rounds differently."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Replace the node by the function body that ONNX defines, with ONNX Runtime's scale of 1 for a tensor of zeros.

    The range includes 0; scale = (max - min) / 255; the zero point is -min in steps of the scale.
    """
    data = edit.input()
    if facts.required().type != "float":
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
    result = edit.before("QuantizeLinear", [data, scale, point], like=edit.output)
    for index, value in zip(range(len(edit.node.outputs)), (result, scale, point), strict=False):
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
    matches=lambda node: node.op,
    rewrite=_rewrite,
)
