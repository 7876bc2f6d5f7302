"""FP16 rule for sums of very many terms, which overflow."""

from __future__ import annotations

import math

import onnx_ir as ir

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.passes.precision.policy.scales import out_of_range
from dmlprep.passes.precision.view import NodeReasons, View

_LONG = 16384
"""The fewest terms of a long sum. With terms of about 1, a sum of four times as many overflows."""


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """Find sums of at least 16,384 terms, and the nodes that read them, until values are in range again."""
    for node in view.order:
        if node.op_type not in ("ReduceSum", "ReduceL1") or not view.wide(node.inputs[0]):
            continue
        before, after = (_elements(v) for v in (node.inputs[0], node.outputs[0]))
        if before and after and before / after >= _LONG:
            yield node, f"it sums {before // after} terms, which might overflow FP16"
            for reader in out_of_range(view, node, before / after):
                yield reader, "it reads a sum of very many terms, which might overflow FP16"


def _elements(value: ir.Value | None) -> int | None:
    if value is None or value.shape is None:
        return None
    sizes = [d for d in value.shape if isinstance(d, int)]
    return math.prod(sizes) if len(sizes) == len(value.shape) else None
