"""FP16 rule for Softmax over a long axis: DirectML computes the sum of exponentials in FP16."""

from __future__ import annotations

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.passes.precision.view import NodeReasons, View


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """Find nodes of the fault's operators (Softmax) over an axis of more than ``fault.limits["axis"]`` elements."""
    for node in view.order:
        if node.op_type not in fault.ops or not view.is_float(node):
            continue
        shape = node.inputs[0].shape if node.inputs[0] is not None else None
        place = node.attributes.get_int("axis", -1)
        if shape is None or not -len(shape) <= place < len(shape):
            continue
        size = shape[place]
        if isinstance(size, int) and size > fault.limits["axis"]:
            yield node, f"it sums {size} exponentials, which might overflow FP16"
