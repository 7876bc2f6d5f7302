"""FP16 rule for Pad before opset 11, whose fill value is an attribute: DirectML reads that wrongly in FP16."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.graph.model.texts import text_of
from dmlprep.passes.precision.view import NodeReasons, View


def _has_value(node: ir.Node) -> bool:
    value = node.attributes.get("value")
    return value is not None and bool(value.value) and text_of(node, "mode", "constant") == "constant"


def find(view: View, _fault: PrecisionFault) -> NodeReasons:
    """Find Pad nodes that fill with a value other than 0 from their attribute."""
    for node in view.order:
        if node.op_type == "Pad" and view.is_float(node) and _has_value(node):
            yield node, "its value is an attribute, which DirectML reads wrongly in FP16"
