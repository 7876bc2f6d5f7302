"""FP16 rule for means of squares, as in a decomposed normalisation: the squares overflow."""

from __future__ import annotations

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.passes.precision.policy.stretches import is_square, to_the_root
from dmlprep.passes.precision.view import NodeReasons, View


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """Find each square that is averaged or summed, that mean or sum, and the nodes from there to the root."""
    for node in view.order:
        if not is_square(view, node):
            continue
        means = [
            n for n in node.outputs[0].consumers() if n.op_type in ("ReduceMean", "ReduceSum", "GlobalAveragePool")
        ]
        if not means:
            continue
        yield node, "a square before a mean: values above 255 overflow FP16"
        for mean in means:
            yield mean, "the mean of squares: values above 255 overflow FP16"
            yield from to_the_root(view, mean.outputs[0])
