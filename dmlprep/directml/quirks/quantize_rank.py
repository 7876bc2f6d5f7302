"""QuantizeLinear and DequantizeLinear of opset 21 on data of five dimensions or more, up to ONNX Runtime 1.24."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import MEASURED, NodeFacts, Quirk
from dmlprep.directml.quirks.quantize_axis import Layout, per_axis, rewrite

_MOST = 4
"""Dimensions that the kernel takes."""


def _matches(node: NodeFacts) -> str:
    rank = node.rank(0) or 0
    if node.since < 21 or rank <= _MOST or node.attribute("block_size", 0):
        return ""
    if node.rank(1) not in (0, 1) or per_axis(node) not in (None, rank - 1):
        return ""  # of the other axes quantize-axis tells
    return f"data of {rank} dimensions"


QUIRK = Quirk(
    id="quantize-rank",
    code="DP662",
    title="quantization of more than four dimensions at opset 21",
    ops=("QuantizeLinear", "DequantizeLinear"),
    outcome="create fails",
    first="1.20",
    last="1.24",
    sources=(MEASURED,),
    matches=_matches,
    rewrite=lambda facts, edit: rewrite(facts, edit, Layout()),
)
