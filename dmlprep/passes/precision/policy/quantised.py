"""FP16 rule for quantised models: scales are exact in FP32, and ONNX Runtime fuses FP32 nodes between them."""

from __future__ import annotations

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.graph.analysis.operators import is_stored_weight
from dmlprep.passes.precision.policy.stretches import scale_makers
from dmlprep.passes.precision.view import NodeReasons, View


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """Find quantize and dequantize nodes, nodes that compute their scales, and nodes that read dequantised values.

    A DequantizeLinear of a stored weight is left out, and so are its readers. They compute in FP16 as with FP16
    weights. FP32 scales would widen the whole weight to FP32.
    """
    version = view.model.ir_version
    for node in view.order:
        if is_stored_weight(node, version):
            continue
        if node.op_type in ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"):
            yield node, "it has a quantisation scale, which FP16 rounds"
            if node.op_type != "DynamicQuantizeLinear":
                for maker in scale_makers(node.inputs[1:3]):
                    yield maker, "it computes a quantisation scale, which FP16 rounds"
        elif node.op_type not in ("Cast", "CastLike") and view.is_float(node):
            for value in node.inputs:
                producer = value.producer() if value is not None else None
                if producer is None or producer.op_type != "DequantizeLinear":
                    continue
                if not is_stored_weight(producer, version):
                    yield node, "its operands are quantised, and ONNX Runtime fuses such nodes only in FP32"
                    break
