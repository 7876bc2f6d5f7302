"""Which outputs are steep, seen in what makes them: Sigmoid, Softmax or LogSoftmax, behind nodes that move values."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.metrics.steep import STEEP
from dmlprep.model import Model
from dmlprep.model.walk import attribute_graphs

__all__ = ["steep_outputs"]

_MOVES = frozenset(
    {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Cast", "Gather", "Split",
     "Resize", "Upsample", "Pad", "Clip", "ReduceMean", "ReduceMax", "AveragePool", "MaxPool"}
)  # fmt: skip
"""Operators that hand values on, at other places, or something between them: of probabilities, a probability."""

_MAKES = {"Sigmoid": "map", "HardSigmoid": "map", "Softmax": "classes", "LogSoftmax": "logits"}
_READS_LOGITS = frozenset({"Softmax", "LogSoftmax", "ArgMax"})


def steep_outputs(model: Model) -> dict[str, str]:
    """Steep outputs by name, each with its kind (``steep.STEEP``)."""
    found = {value.name or "": _kind(value) for value in model.ir.graph.outputs}
    return {name: kind for name, kind in found.items() if kind in STEEP}


def _kind(value: ir.Value) -> str:
    if "logit" in (value.name or "").lower() or any(n.op_type in _READS_LOGITS for n in value.consumers()):
        return "logits"
    node = value.producer()
    while node is not None and node.op_type in _MOVES and node.inputs and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    if node is None or node.domain not in ("", "ai.onnx"):
        return ""
    if node.op_type == "If":
        place = value.index() or 0
        kinds = {_kind(graph.outputs[place]) for _, graph in attribute_graphs(node)}
        return kinds.pop() if len(kinds) == 1 else ""
    return _MAKES.get(node.op_type, "")
