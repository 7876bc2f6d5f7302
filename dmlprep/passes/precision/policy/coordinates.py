"""FP16 rule for box coordinates: above 1024, FP16 numbers are at least a pixel apart."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.graph.analysis.operators import MOVES
from dmlprep.passes.precision.policy.stretches import ELEMENTWISE
from dmlprep.passes.precision.view import NodeReasons, View

_BOX_ARITHMETIC = ELEMENTWISE | MOVES
_BOX_READERS = {"NonMaxSuppression": (0,), "RoiAlign": (1,), "MaxRoiPool": (1,)}


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """Find the element-wise arithmetic that computes the boxes of NonMaxSuppression, RoiAlign and MaxRoiPool.

    The search goes backwards from the boxes up to a node that is not element-wise, such as a convolution.
    """
    for reader in view.order:
        for index in _BOX_READERS.get(reader.op_type, ()):
            value = reader.inputs[index] if index < len(reader.inputs) else None
            stack, visited = [value], set[ir.Node]()
            while stack:
                value = stack.pop()
                producer = value.producer() if value is not None else None
                if producer is None or producer in visited or producer.op_type not in _BOX_ARITHMETIC:
                    continue
                if not any(view.wide(v) for v in producer.outputs):
                    continue
                visited.add(producer)
                if producer.op_type not in ("Cast", "Constant"):
                    yield (
                        producer,
                        f"it computes coordinates for {reader.op_type}: above 1024, FP16 has steps of a pixel",
                    )
                stack += [v for _, v, _ in view.wide_inputs(producer)]
