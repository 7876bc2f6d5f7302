"""FP16 rule for sums that a Loop or Scan carries from iteration to iteration, and whose roundings add up."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.graph.analysis.operators import MOVES
from dmlprep.graph.model.walk import attribute_graphs
from dmlprep.passes.precision.view import NodeReasons, View

_FARTHEST = 64  # nodes
_FEW = 32
"""Most iterations of a loop that stays in FP16: 32 roundings give an error of 1.6 % at worst, usually a tenth of it."""


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """Find the nodes that add to a value carried between iterations, and the Loop or Scan that carries the value.

    Loops of at most 32 iterations are left out; a loop without a fixed number is not.
    """
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
                yield add, "it adds to a sum carried between iterations, which FP16 rounds each time"
            if adds:
                yield node, "it carries a sum between iterations, which FP16 rounds each time"


def _turns(view: View, node: ir.Node) -> int | None:
    """The number of iterations of a Loop or Scan; ``None`` if the model does not fix it."""
    if node.op_type == "Loop":
        tensor = view.constant(node.inputs[0])
        return int(tensor.numpy().reshape(-1)[0]) if tensor is not None and tensor.size == 1 else None
    scanned, axes = node.inputs[-1], node.attributes.get("scan_input_axes")
    if scanned is None or scanned.shape is None or axes is not None:
        return None
    size = scanned.shape[0] if len(scanned.shape) else None
    return size if isinstance(size, int) else None


def _adds_between(carried: ir.Value, result: ir.Value) -> Iterator[ir.Node]:
    """The additions that turn a carried value into ``result``, its value for the next iteration.

    Only ways of additions, moves and casts count.
    """
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
