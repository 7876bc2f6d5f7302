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
            for other in _layer_norm(view, node, mean, {n for n, _ in root}):
                yield other, "a part of a layer normalization with a mean of squares; ONNX Runtime fuses it in one type"


def _layer_norm(view: View, square: ir.Node, variance: ir.Node, root: set[ir.Node]) -> list[ir.Node]:
    """Return the other nodes of the layer normalization with a square: ``(x - mean(x)) / root * scale + bias``.

    Empty if ONNX Runtime does not fuse it: the square is not a Pow, a mean is not over the last axis, or scale and
    bias are not vectors. From opset 17 on, ``write_norms`` writes it as one node if ONNX Runtime would fuse it with two
    types. So it is also empty there if scale and bias do not have the known size of the last axis.
    """
    value = square.inputs[0]
    sub = value.producer() if value is not None else None
    mean = sub.inputs[1].producer() if sub is not None and sub.op_type == "Sub" and sub.inputs[1] is not None else None
    shape = mean.inputs[0].shape if mean is not None and mean.inputs[0] is not None else None
    if mean is None or square.op_type != "Pow" or not all(_is_mean_of_rows(view, n, shape) for n in (mean, variance)):
        return []
    subs = list(mean.outputs[0].consumers())
    if any(n.op_type != "Sub" or n.inputs[0] is not mean.inputs[0] for n in subs):
        return []
    needs_size = view.model.opset_imports.get("", _FIRST_LAYER_NORM) >= _FIRST_LAYER_NORM
    size = shape[-1] if shape else None
    for div in (n for sub in subs for n in sub.outputs[0].consumers() if n.op_type == "Div"):
        mul = _only_reader(div, "Mul")
        add = _only_reader(mul, "Add") if mul is not None else None
        if add is None or mul is None or div.inputs[1] is None or div.inputs[1].producer() not in root:
            continue
        sizes = [_vector(view, n) for n in (mul, add)]
        if None not in sizes and (not needs_size or sizes == [size, size]):
            return [mean, *subs, div, mul, add]
    return []


def _is_mean_of_rows(view: View, mean: ir.Node, shape: ir.Shape | None) -> bool:
    """Return whether a node is a ReduceMean that keeps the rank and reduces only the last axis of data of a shape."""
    stored = view.constant(mean.inputs[1]) if len(mean.inputs) > 1 else None
    at = [int(a) for a in stored.numpy().reshape(-1)] if stored is not None else mean.attributes.get_ints("axes")
    last = at is not None and (list(at) == [-1] or (shape is not None and list(at) == [len(shape) - 1]))
    return mean.op_type == "ReduceMean" and last and mean.attributes.get_int("keepdims", 1) == 1


def _only_reader(node: ir.Node, op_type: str) -> ir.Node | None:
    """Return the only reader of a node, if it is an ``op_type``; ``None`` otherwise, or if an output is in between."""
    readers = list(node.outputs[0].consumers())
    one = len(readers) == 1 and readers[0].op_type == op_type and not node.outputs[0].is_graph_output()
    return readers[0] if one else None


def _vector(view: View, node: ir.Node) -> int | None:
    """Return the size of a constant vector that a node reads; ``None`` if it reads none."""
    tensors = [t for v in node.inputs if (t := view.constant(v)) is not None and len(t.shape) == 1]
    return tensors[-1].size if tensors else None
