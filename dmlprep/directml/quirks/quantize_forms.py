"""QuantizeLinear and DequantizeLinear without a zero point, or of opset 21 on data of five dimensions or more."""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk
from dmlprep.directml.quirks.quantize_axis import Layout, per_axis, rewrite


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the default zero point: 0, of type uint8 for QuantizeLinear, of the data's type for DequantizeLinear."""
    x, scale = facts.required(0), facts.required(1)
    if not scale.static or not x.type:
        return "the shape of its scale is unknown"
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
    matches=lambda node: (
        "" if node.input(2) is not None or node.since >= 21 else "no zero point, which only a fused graph allows"
    ),
    fused=lambda nodes, partitions: [id(node) not in partitions for node in nodes],
    rewrite=_rewrite,
)


_MOST = 4
"""The most dimensions of data that DirectML's kernels accept."""


def _matches(node: NodeFacts) -> str:
    rank = node.rank(0) or 0
    if node.since < 21 or rank <= _MOST or node.attribute("block_size", 0):
        return ""
    if node.rank(1) not in (0, 1) or per_axis(node) not in (None, rank - 1):
        return ""  # quantize-axis reports other axes
    return f"data of {rank} dimensions"


QUIRK_RANK = Quirk(
    id="quantize-rank",
    code="DP662",
    title="quantization of more than four dimensions at opset 21",
    ops=("QuantizeLinear", "DequantizeLinear"),
    outcome="create fails",
    first="1.20",
    last="1.24",
    matches=_matches,
    rewrite=lambda facts, edit: rewrite(facts, edit, Layout()),
)
