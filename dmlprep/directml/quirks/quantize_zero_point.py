"""QuantizeLinear and DequantizeLinear without a zero point."""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the default zero point: 0, of type uint8 for QuantizeLinear, of the data's type for DequantizeLinear."""
    x, scale = facts.required(0), facts.required(1)
    if not scale.static or not x.type:
        return "the shape of its scale is not known"
    edit.room(scale.sizes, 1, "a zero point")
    kind = np.dtype(np.uint8) if facts.op == "QuantizeLinear" else x.numpy_type
    edit.set_input(2, edit.constant(np.zeros(scale.sizes, kind), "zero_point"))
    return ""


QUIRK = Quirk(
    id="quantize-zero-point",
    code="DP615",
    title="quantization without zero point",
    severity="warning",
    ops=("QuantizeLinear", "DequantizeLinear"),
    outcome="run fails",
    confidence="environment",
    sources=(MEASURED + ", on a CPU driver",),
    matches=lambda node: "" if node.input(2) is not None or node.since >= 21 else "no zero point",
    rewrite=_rewrite,
)
