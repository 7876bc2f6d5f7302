"""Weights of convolutions that lie in the file in 8 bits, as the step ``weights`` writes them."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.analysis.knowledge import constant_of


def is_stored_weight(node: ir.Node, ir_version: int) -> bool:
    """Whether a node widens a constant weight for convolutions whose data is not quantised: com.microsoft's
    DequantizeLinear, which takes scales of FP16 at every opset.
    """
    if node.op_type != "DequantizeLinear" or node.domain != "com.microsoft":
        return False
    if any(value is not None and constant_of(value, ir_version) is None for value in node.inputs):
        return False
    uses = node.outputs[0].uses()
    return bool(uses) and not node.outputs[0].is_graph_output() and all(_is_weight(*use) for use in uses)


def _is_weight(user: ir.Node, index: int) -> bool:
    if user.op_type not in ("Conv", "ConvTranspose") or user.domain or index != 1:
        return False
    maker = user.inputs[0].producer() if user.inputs[0] is not None else None
    return maker is None or maker.op_type != "DequantizeLinear"
