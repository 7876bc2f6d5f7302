"""FP16 rule for means of squares, as in a decomposed normalisation: the squares overflow."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.targets.precision import PrecisionFault
from dmlprep.passes.precision.policy.stretches import is_square, to_the_root
from dmlprep.passes.precision.view import NodeReasons, View

_FIRST_LAYER_NORM = 17
"""The first opset of ai.onnx that has LayerNormalization, with one type for all inputs."""


def find(view: View, fault: PrecisionFault) -> NodeReasons:
    """Find each square that is averaged or summed, that mean or sum, and the nodes from there to the root.

    If ONNX Runtime fuses them in a layer normalization, find all its nodes: casts inside would prevent the fusion.
    """
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
            root = list(to_the_root(view, mean.outputs[0]))
            yield from root
            for other in _layer_norm(view, node, {n for n, _ in root}):
                yield other, "a part of a layer normalization with a mean of squares; ONNX Runtime fuses it in one type"


def _layer_norm(view: View, square: ir.Node, root: set[ir.Node]) -> list[ir.Node]:
    """Return the other nodes of the layer normalization with a square: ``(x - mean(x)) / root * scale + bias``.

    Empty if ONNX Runtime does not fuse it: the mean is not over the last axis, or scale and bias are no vectors. Also
    empty from opset 17 on. There ONNX Runtime 1.30 fuses the Cast before the mean too, and then refuses the types.
    """
    if view.model.opset_imports.get("", _FIRST_LAYER_NORM) >= _FIRST_LAYER_NORM:
        return []
    value = square.inputs[0]
    sub = value.producer() if value is not None else None
    mean = sub.inputs[1].producer() if sub is not None and sub.op_type == "Sub" and sub.inputs[1] is not None else None
    if mean is None or mean.op_type != "ReduceMean" or not _over_last_axis(mean):
        return []
    subs = list(mean.outputs[0].consumers())
    if any(n.op_type != "Sub" or n.inputs[0] is not mean.inputs[0] for n in subs):
        return []
    for div in (n for sub in subs for n in sub.outputs[0].consumers() if n.op_type == "Div"):
        mul = _only_reader(view, div, "Mul")
        add = _only_reader(view, mul, "Add") if mul is not None else None
        if add is not None and mul is not None and div.inputs[1] is not None and div.inputs[1].producer() in root:
            return [mean, *subs, div, mul, add]
    return []


def _over_last_axis(mean: ir.Node) -> bool:
    """Return whether a ReduceMean below opset 18 keeps the rank and reduces only the last axis."""
    axes = mean.attributes.get("axes")
    at = list(axes.as_ints()) if axes is not None else []
    shape = mean.inputs[0].shape if mean.inputs[0] is not None else None
    last = at == [-1] or (shape is not None and at == [len(shape) - 1])
    return last and mean.attributes.get_int("keepdims", 1) == 1


def _only_reader(view: View, node: ir.Node, op_type: str) -> ir.Node | None:
    """Return the only reader of a node, if it is an ``op_type`` with a constant vector; otherwise ``None``."""
    readers = list(node.outputs[0].consumers())
    if len(readers) != 1 or readers[0].op_type != op_type or node.outputs[0].is_graph_output():
        return None
    constants = [view.constant(v) for v in readers[0].inputs]
    return readers[0] if any(t is not None and len(t.shape) == 1 for t in constants) else None
