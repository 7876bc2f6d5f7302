"""Sin and Cos of positions lose accuracy: FP16 has no fraction bits at large phases."""

from __future__ import annotations

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.passes.precision.policy.stretches import from_integers, upstream
from dmlprep.passes.precision.view import NodeReasons, View

_PHASE_STEPS = frozenset({"CumSum", "Resize", "Upsample"})
"""Operators, besides arithmetic, between a frequency and the angle of its sine."""


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """Sin and Cos of positions, and the nodes that compute the positions.

    A floating-point input may be a position (the time step of a diffusion). So may a running sum: the phase of a sine
    whose frequency changes (a vocoder's source) grows with the length of the signal.
    """
    starts = [v for v in view.model.graph.inputs if view.wide(v)]
    starts += [v for node in view.order if node.op_type == "CumSum" for v in node.outputs if view.wide(v)]
    inside = from_integers(view, starts, _PHASE_STEPS)
    ends = [node for node in view.order if node.op_type in ("Sin", "Cos") and view.is_float(node)]
    for node in ends:
        yield node, "its argument is an angle"
    for node in upstream([v for n in ends for v in n.inputs if v is not None], inside):
        yield node, "it computes the angle of Sin or Cos from a position"
