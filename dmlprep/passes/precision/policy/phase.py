"""FP16 rule for Sin and Cos of positions: at large angles, FP16 numbers have no fraction bits."""

from __future__ import annotations

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.passes.precision.policy.stretches import from_integers, upstream
from dmlprep.passes.precision.view import NodeReasons, View

_PHASE_STEPS = frozenset({"CumSum", "Resize", "Upsample"})
"""Operators, besides arithmetic, that may be between a frequency and the angle that is computed from it."""


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """Find every Sin and Cos, and the nodes that compute their angles from positions.

    Positions are integers in floats, floating-point graph inputs (the time step of a diffusion model), and running
    sums. An example of a running sum is the phase in a vocoder, which grows with the length of the signal.
    """
    starts = [v for v in view.model.graph.inputs if view.wide(v)]
    starts += [v for node in view.order if node.op_type == "CumSum" for v in node.outputs if view.wide(v)]
    inside = from_integers(view, starts, _PHASE_STEPS)
    ends = [node for node in view.order if node.op_type in ("Sin", "Cos") and view.is_float(node)]
    for node in ends:
        yield node, "its argument is an angle: FP16 loses the fraction of large angles"
    for node in upstream([v for n in ends for v in n.inputs if v is not None], inside):
        yield node, "it computes the angle of Sin or Cos from a position: FP16 loses the fraction of large angles"
