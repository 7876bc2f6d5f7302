"""Box coordinates above 1024 have steps of a pixel in FP16."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.graph.analysis.operators import MOVES
from dmlprep.passes.precision.policy.stretches import ELEMENTWISE
from dmlprep.passes.precision.view import NodeReasons, View

_BOX_ARITHMETIC = ELEMENTWISE | MOVES
_BOX_READERS = {"NonMaxSuppression": (0,), "RoiAlign": (1,), "MaxRoiPool": (1,)}


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """The element-wise arithmetic that computes boxes from a network's outputs, up to the first real layer."""
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
                    yield producer, f"it computes coordinates for {reader.op_type}"
                stack += [v for _, v, _ in view.wide_inputs(producer)]
