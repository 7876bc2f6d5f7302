"""QuantizeLinear and DequantizeLinear without a zero point."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    return "" if node.input(2) is not None or node.since >= 21 else "no zero point"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the default zero point: 0, of type uint8 for QuantizeLinear, of the data's type for DequantizeLinear."""
    x, scale = facts.input(0), facts.input(1)
    if x is None or scale is None or scale.shape is None or not scale.static or not x.type:
        return "the shape of its scale is not known"
    kind = "UINT8" if facts.op == "QuantizeLinear" else x.type.upper()
    edit.room(scale.sizes, 1, "a zero point")
    zeros = np.zeros(scale.sizes, ir.DataType[kind].numpy())
    edit.set_input(2, edit.constant(zeros, "zero_point"))
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
    matches=_matches,
    rewrite=_rewrite,
)
