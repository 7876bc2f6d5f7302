"""Softmax or LeakyRelu between DequantizeLinear and QuantizeLinear.

ONNX Runtime fuses the three into a quantized operator, for which DirectML has no kernel.
"""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import ORT_SOURCE, Edit, NodeFacts, Quirk
from dmlprep.directml.quirks.patterns import only_consumer
from dmlprep.directml.quirks.redundant_clip import LIMITS, dequantized


def _matches(node: NodeFacts) -> str:
    reader = only_consumer(node.output())
    if reader is not None and reader.key in ("Relu", "Clip"):
        reader = only_consumer(reader.output())
    out = reader.output() if reader is not None and reader.key == "QuantizeLinear" else None
    if out is None or out.type not in LIMITS or not dequantized(node, out.type):
        return ""
    return f"{node.op} between DequantizeLinear and QuantizeLinear of {out.type}"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Insert a Sum of one operand before the node: ONNX Runtime does not remove it, and does not fuse across it."""
    edit.set_input(0, edit.before("Sum", [edit.input()], like=edit.input()))
    return ""


QUIRK = Quirk(
    id="quantized-unary",
    code="DP633",
    title="quantized Softmax or LeakyRelu",
    ops=("Softmax", "LeakyRelu"),
    outcome="crash",
    first="1.21",
    last="1.23",
    sources=(
        "measured on onnxruntime-directml 1.21.1, 1.22.0 and 1.23.0; 1.19.2, 1.20.1 and 1.24.4 run it",
        ORT_SOURCE + "onnxruntime/core/optimizer/qdq_transformer/selectors_actions/qdq_selector_action_transformer.cc",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
