"""FP16 rule for the arithmetic that scales the integer results of MatMulInteger and ConvInteger back."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.graph.analysis.operators import MOVES
from dmlprep.passes.precision.policy.stretches import scale_makers
from dmlprep.passes.precision.view import NodeReasons, View


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """Find nodes that scale integer results of MatMulInteger and ConvInteger, and nodes that compute the scales.

    The results reach 2**31, and products of scales may be below FP16's range.
    """
    for node in view.order:
        if node.op_type not in ("MatMulInteger", "ConvInteger"):
            continue
        stack, visited = list(node.outputs), set[ir.Node]()
        while stack:
            value = stack.pop()
            for reader in value.consumers():
                sums = reader.op_type in ("Add", "Sub") and not view.is_float(reader)
                if reader in visited or not (sums or reader.op_type in MOVES | {"Cast", "Mul", "Div"}):
                    continue
                visited.add(reader)
                stack += reader.outputs
                if reader.op_type != "Cast" and view.is_float(reader):
                    yield reader, "it scales the integer result of a product, up to 2^31"
                    for maker in scale_makers((v for v in reader.inputs if v is not value), MOVES | {"Mul", "Div"}):
                        yield maker, "it computes a quantisation scale, which FP16 rounds"
