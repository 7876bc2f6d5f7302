"""Decomposed normalisations that ONNX Runtime's CPU provider fuses across its own casts, and then refuses."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.passes.precision.policy.stretches import is_square, through_moves, to_the_root
from dmlprep.passes.precision.view import Found, View


def find(view: View, fault: PrecisionFault) -> Found:
    """The squares of decomposed LayerNormalizations, and of decomposed RMSNormalizations where there are several."""
    centred: list[ir.Node] = []
    plain: list[ir.Node] = []
    for node in view.order:
        if not is_square(view, node):
            continue
        way = [step for mean in node.outputs[0].consumers() for step, _ in to_the_root(view, mean.outputs[0])]
        if any(step.op_type in ("Sqrt", "Pow") for step in way):
            made_by = through_moves(node.inputs[0])
            (centred if made_by is not None and made_by.op_type == "Sub" else plain).append(node)
    for node in centred:
        yield node, "the square in a decomposed LayerNormalization"
    # One exponent alone is fused rightly; the cast of one that several share is not found again.
    powers = [node for node in plain if node.op_type == "Pow"]
    for node in powers if len(powers) + len(centred) > 1 else ():
        yield node, "the square in one of several decomposed RMSNormalizations"
