"""Sizes on which onnx's inference and ONNX Runtime do not agree: they are not known.

A Slice that runs backwards to the largest number that there is takes nothing for onnx's inference and its reference
evaluator, and all down to the first element for ONNX Runtime's CPU provider (SliceBase, tried with 1.24).
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from dmlprep.analysis.folding import Uncertain, slice_of
from dmlprep.analysis.known import Known

__all__ = ["take_back"]


def take_back(known: Known, node: ir.Node, inferred: dict[str, onnx.TypeProto]) -> None:
    """Clear the sizes of a node's outputs, as onnx inferred them, that are in doubt."""
    if node.op_type != "Slice" or len(node.inputs) < 5 or not node.outputs:
        return
    proto = inferred.get(node.outputs[0].name or "")
    ends, axes, steps = (known.constant(value) for value in node.inputs[2:5])
    if proto is None or ends is None or steps is None:
        return
    dims = proto.tensor_type.shape.dim
    places = range(ends.size) if axes is None else [int(a) for a in axes.reshape(-1)]
    for place, end, step in zip(places, ends.reshape(-1), steps.reshape(-1), strict=False):
        try:
            slice_of(0, int(end), int(step), 1)
        except Uncertain:
            if -len(dims) <= place < len(dims):
                dims[place].Clear()
