"""QuantizeLinear and DequantizeLinear of opset 21 on data of five dimensions or more, up to ONNX Runtime 1.24."""

from __future__ import annotations

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quantize_axis import Layout, per_axis, rewrite
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts

_MOST = 4
"""Dimensions that the kernel takes."""


def _matches(node: NodeFacts) -> str:
    x, scale = node.input(0), node.input(1)
    if node.since < 21 or x is None or x.rank is None or x.rank <= _MOST or node.attribute("block_size", 0):
        return ""
    if scale is None or scale.rank not in (0, 1) or per_axis(node) not in (None, x.rank - 1):
        return ""  # of the other axes quantize-axis tells
    return f"data of {x.rank} dimensions"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    return rewrite(facts, edit, Layout())


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
    rewrite=_rewrite,
)
