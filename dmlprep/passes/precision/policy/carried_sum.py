"""Sums that a Loop or Scan carries from iteration to iteration."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.graph.analysis.operators import MOVES
from dmlprep.graph.model.walk import attribute_graphs
from dmlprep.passes.precision.view import NodeReasons, View

_FARTHEST = 64  # nodes
_FEW = 32
"""Iterations of a loop whose sum has at most 32 roundings: 1.6 % error at worst, usually a tenth of that."""


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """Additions to a value that a Loop or Scan carries from iteration to iteration, and the node that carries it."""
    for node in view.order:
        body = next((graph for name, graph in attribute_graphs(node) if name == "body"), None)
        if body is None or node.op_type not in ("Loop", "Scan") or (_turns(view, node) or _FEW + 1) <= _FEW:
            continue
        loop = node.op_type == "Loop"
        states = len(node.inputs) - (2 if loop else node.attributes["num_scan_inputs"].as_int())
        before = body.inputs[2 : 2 + states] if loop else body.inputs[:states]
        after = body.outputs[1 : 1 + states] if loop else body.outputs[:states]
        for carried, result in zip(before, after, strict=False):
            adds = list(_adds_between(carried, result)) if view.wide(carried) else []
            for add in adds:
                yield add, "it adds to a value carried between iterations"
            if adds:
                yield node, "it carries a sum between iterations"


def _turns(view: View, node: ir.Node) -> int | None:
    """The number of iterations of a body, where it is constant in the model."""
    if node.op_type == "Loop":
        tensor = view.constant(node.inputs[0])
        return int(tensor.numpy().reshape(-1)[0]) if tensor is not None and tensor.size == 1 else None
    scanned, axes = node.inputs[-1], node.attributes.get("scan_input_axes")
    if scanned is None or scanned.shape is None or axes is not None:
        return None
    size = scanned.shape[0] if len(scanned.shape) else None
    return size if isinstance(size, int) else None


def _adds_between(carried: ir.Value, result: ir.Value) -> Iterator[ir.Node]:
    """The additions on the way from a carried value to its next one, if there is nothing else on the way."""
    stack: list[tuple[ir.Value, tuple[ir.Node, ...]]] = [(result, ())]
    steps = 0
    while stack and steps < _FARTHEST:
        steps += 1
        value, adds = stack.pop()
        if value is carried:
            yield from adds
            continue
        node = value.producer()
        if node is None or node.op_type not in MOVES | {"Add", "Sub", "Sum", "Cast"}:
            continue
        mine = (*adds, node) if node.op_type in ("Add", "Sub", "Sum") else adds
        stack += [(v, mine) for v in node.inputs if v is not None]
