"""FP16 rule for the logarithm of a sum of exponentials, which overflow unless the maximum is subtracted first."""

from __future__ import annotations

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.passes.precision.policy.stretches import through_moves
from dmlprep.passes.precision.view import NodeReasons, View


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """Find each Exp, ReduceSum and Log in a row, unless the argument of Exp is computed by a Sub."""
    for node in view.order:
        if node.op_type != "Log" or not view.is_float(node):
            continue
        sums = through_moves(node.inputs[0])
        if sums is None or sums.op_type != "ReduceSum":
            continue
        exp = through_moves(sums.inputs[0])
        if exp is None or exp.op_type != "Exp":
            continue
        shifted = through_moves(exp.inputs[0])
        if shifted is None or shifted.op_type != "Sub":
            for part in (exp, sums, node):
                yield part, "an exponential before the logarithm of its sum overflows FP16 above 11.09"
