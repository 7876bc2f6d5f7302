"""Shapes through the bodies of If, Loop and Scan, and the inputs that decide an If.

Semantics: https://onnx.ai/onnx/operators/onnx__If.html, onnx__Loop.html, onnx__Scan.html.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir

from dmlprep.graph.analysis.knowledge import Known
from dmlprep.graph.model.constants import held_tensor
from dmlprep.graph.model.walk import main_graphs

Walk = Callable[[ir.Graph, int], None]

BODIES = frozenset({"If", "Loop", "Scan"})

_DEEP = 6  # Loops nested deeper than this are walked once each; the shapes of their loop-carried values are unknown


def merged(a: onnx.TypeProto | None, b: onnx.TypeProto | None) -> onnx.TypeProto | None:
    """Return the most exact type that includes both types: sizes or ranks that differ become unknown.

    ``None`` if an input is ``None``, or if the kinds or the element types differ.
    """
    if a is None or b is None or a.WhichOneof("value") != b.WhichOneof("value"):
        return None
    if not a.HasField("tensor_type"):
        plain = _shapeless(a)
        return a if a == b else plain if plain == _shapeless(b) else None
    result = onnx.TypeProto()
    result.CopyFrom(a)
    mine, other = result.tensor_type, b.tensor_type
    if mine.elem_type != other.elem_type:
        return None
    if not (mine.HasField("shape") and other.HasField("shape")) or len(mine.shape.dim) != len(other.shape.dim):
        mine.ClearField("shape")
        return result
    for dim, other_dim in zip(mine.shape.dim, other.shape.dim, strict=True):
        sizes = [(d.WhichOneof("value"), d.dim_value, d.dim_param) for d in (dim, other_dim)]
        if sizes[0] != sizes[1]:
            dim.Clear()
    return result


def _shapeless(proto: onnx.TypeProto) -> onnx.TypeProto:
    """Copy a type without any shape, also without those of a sequence's or optional's elements."""
    result = onnx.TypeProto()
    result.CopyFrom(proto)
    inner = result
    while (which := inner.WhichOneof("value")) in ("sequence_type", "optional_type"):
        inner = getattr(inner, which).elem_type
    if which == "tensor_type":
        inner.tensor_type.ClearField("shape")
    return result


def _scanned(body: onnx.TypeProto | None, length: int | None, axis: int = 0) -> onnx.TypeProto | None:
    """Return the type of a scan output: ``length`` values of type ``body``, stacked along ``axis``.

    ``None`` if ``body`` is unknown or not a tensor. ``length`` may be ``None``: unknown.
    """
    if body is None or not body.HasField("tensor_type"):
        return None
    result = onnx.TypeProto()
    result.tensor_type.elem_type = body.tensor_type.elem_type
    if body.tensor_type.HasField("shape"):
        dims = list(body.tensor_type.shape.dim)
        new = onnx.TensorShapeProto.Dimension()
        if length is not None:
            new.dim_value = length
        axis = axis + len(dims) + 1 if axis < 0 else axis
        dims.insert(axis, new)
        result.tensor_type.shape.dim.extend(dims)
    return result


def infer(known: Known, node: ir.Node, depth: int, walk: Walk) -> bool:
    """Infer the outputs of an If, Loop or Scan, and set their types in ``known``.

    Args:
        depth: how many bodies enclose the node.
        walk: a function that infers the nodes of a body, with the number of bodies around them.

    Returns:
        True if the outputs were inferred; False leaves the node to onnx's own inference.
    """
    if node.op_type == "If":
        return _if(known, node, depth, walk)
    if node.op_type == "Loop":
        return _loop(known, node, depth, walk)
    return known.version(node) >= 9 and _scan(known, node, depth, walk)


def _body(node: ir.Node, name: str) -> ir.Graph | None:
    attr = node.attributes.get(name)
    return attr.as_graph() if attr is not None and not attr.is_ref() else None


def chosen_branch(known: Known, node: ir.Node) -> ir.Graph | None:
    """Return the branch of an If that runs on any data; ``None`` where it depends on data, or for another node."""
    if node.op_type != "If" or node.domain or not node.inputs:
        return None
    condition = known.constant(node.inputs[0])
    if condition is None:
        return None
    return _body(node, "then_branch" if condition.all() else "else_branch") if condition.size == 1 else None


def _if(known: Known, node: ir.Node, depth: int, walk: Walk) -> bool:
    then, other = _body(node, "then_branch"), _body(node, "else_branch")
    if then is None or other is None:
        return False
    branch = chosen_branch(known, node)
    if branch is not None:
        # The other branch never runs, and may not even fit these shapes.
        walk(branch, depth + 1)
        for output, value in zip(node.outputs, branch.outputs, strict=False):
            known.set_type(output, known.types.get(value))
            if value in known.constants:
                known.set_constant(output, known.constants[value])
        return True
    walk(then, depth + 1)
    walk(other, depth + 1)
    for output, a, b in zip(node.outputs, then.outputs, other.outputs, strict=False):
        known.set_type(output, merged(known.types.get(a), known.types.get(b)))
    return True


def _settle(
    known: Known, body: ir.Graph, inputs: list[ir.Value], outputs: list[ir.Value], depth: int, walk: Walk
) -> None:
    """Infer a body again and again, until the types of its loop-carried values are the same after every iteration.

    In deep nests, and after too many nodes, the shapes of these values become unknown instead.
    """
    while depth <= _DEEP and known.walked <= known.most_walked:
        walk(body, depth + 1)
        stable = True
        for before, after in zip(inputs, outputs, strict=False):
            old = known.types.get(before)
            new = merged(old, known.types.get(after)) if after in known.types else old and _shapeless(old)
            if old != new:
                # Each iteration removes a size, a rank or a type, so the walk ends.
                known.set_type(before, new)
                stable = False
        if stable:
            return
    for value in inputs:
        old = known.types.get(value)
        known.set_type(value, old and _shapeless(old))
    walk(body, depth + 1)


def _loop(known: Known, node: ir.Node, depth: int, walk: Walk) -> bool:
    body = _body(node, "body")
    if body is None or len(body.inputs) < 2 or len(node.inputs) < 2 or not body.outputs:
        return False
    for value, elem_type in zip(body.inputs, (onnx.TensorProto.INT64, onnx.TensorProto.BOOL), strict=False):
        known.set_type(value, _single(value, elem_type))
    carried = list(body.inputs[2:])
    for inner, outer in zip(carried, node.inputs[2:], strict=False):
        known.set_type(inner, known.type(outer))
    _settle(known, body, carried, list(body.outputs[1 : 1 + len(carried)]), depth, walk)
    for output, inner in zip(node.outputs, carried, strict=False):
        known.set_type(output, known.types.get(inner))
    trips = _trips(known, node, body)
    for output, inner in zip(node.outputs[len(carried) :], body.outputs[1 + len(carried) :], strict=False):
        known.set_type(output, _scanned(known.types.get(inner), trips))
    return True


def _single(value: ir.Value, elem_type: int) -> onnx.TypeProto:
    """Return the type of a body's counter or condition: a scalar, or a vector of one element if so declared.

    ONNX allows only scalars there. ONNX Runtime passes the declared form (its Loop kernel reads the rank).
    """
    vector = value.shape is not None and len(value.shape) == 1
    return onnx.helper.make_tensor_type_proto(elem_type, [1] if vector else [])


def _trips(known: Known, node: ir.Node, body: ir.Graph) -> int | None:
    """Return how often a Loop runs, if its count is constant and no condition ends it early; ``None`` otherwise."""
    count, start, end = known.constant(node.inputs[0]), node.inputs[1], body.outputs[0]
    begins = start is None or bool(np.all(known.constants.get(start, np.array(False))))
    producer = end.producer()
    ends = [end, producer.inputs[0] if producer is not None and producer.op_type == "Identity" else None]
    continues = body.inputs[1] in ends or bool(np.all(known.constants.get(end, np.array(False))))
    certain = count is not None and count.size == 1 and begins and continues
    return max(0, int(count.reshape(-1)[0])) if certain and count is not None else None


def _scan(known: Known, node: ir.Node, depth: int, walk: Walk) -> bool:
    body = _body(node, "body")
    scans = node.attributes.get_int("num_scan_inputs", 0)
    if body is None or scans < 1 or len(body.inputs) != len(node.inputs) or len(node.inputs) < scans:
        return False
    states = len(node.inputs) - scans
    axes = list(node.attributes.get_ints("scan_input_axes", [0] * scans) or [0] * scans)
    length: int | None = None
    for index, (inner, outer) in enumerate(zip(body.inputs, node.inputs, strict=True)):
        proto = known.type(outer)
        if index >= states and proto is not None and proto.tensor_type.HasField("shape"):
            axis, rank = axes[index - states], len(proto.tensor_type.shape.dim)
            if not -rank <= axis < rank:
                return False
            dim = proto.tensor_type.shape.dim[axis]
            length = dim.dim_value if dim.HasField("dim_value") else length
            rest = [d for i, d in enumerate(proto.tensor_type.shape.dim) if i != axis % rank]
            proto = onnx.TypeProto()
            proto.tensor_type.elem_type = known.dtype(outer)
            proto.tensor_type.shape.SetInParent()
            proto.tensor_type.shape.dim.extend(rest)
        known.set_type(inner, proto)
    _settle(known, body, list(body.inputs[:states]), list(body.outputs[:states]), depth, walk)
    for output, inner in zip(node.outputs[:states], body.inputs[:states], strict=False):
        known.set_type(output, known.types.get(inner))
    count = len(node.outputs) - states
    out_axes = list(node.attributes.get_ints("scan_output_axes", [0] * count) or [0] * count)
    for index, (output, inner) in enumerate(zip(node.outputs[states:], body.outputs[states:], strict=False)):
        known.set_type(output, _scanned(known.types.get(inner), length, out_axes[index]))
    return True


def deciding_inputs(model: ir.Model) -> dict[str, str]:
    """Return the names of inputs that decide an If of the model -> the number that its condition compares, as text.

    The text is in TOML's form. It is ``true`` for a boolean input, and ``VALUE`` where the condition compares no
    number. Conditions that depend on anything but constants and inputs of one element are left out.
    """
    inputs: dict[str, str] = {}
    for node in (node for graph in main_graphs(model) for node in graph):
        if node.domain in ("", "ai.onnx") and node.op_type == "If" and node.inputs:
            inputs.update(_behind(node.inputs[0], model.graph))
    return inputs


def _behind(condition: ir.Value | None, main: ir.Graph) -> dict[str, str]:
    """Return the names of the inputs from which a condition is computed -> the number that it compares, as text.

    Empty if one of them is not known to have exactly one element, or is an input of a body.
    """
    stack, visited = [condition], set[ir.Value]()
    names: list[str] = []
    number = "VALUE"
    while stack:
        value = stack.pop()
        if value is None or value in visited:
            continue
        visited.add(value)
        producer, tensor = value.producer(), held_tensor(value)
        if tensor is not None:
            if tensor.size == 1 and tensor.dtype.is_integer() | tensor.dtype.is_floating_point():
                number = str(tensor.numpy().reshape(-1)[0])
        elif producer is not None:
            stack += producer.inputs
        elif value.graph is main and value.shape is not None and all(size == 1 for size in value.shape):
            names.append(value.name or "")
            number = "true" if value.dtype == ir.DataType.BOOL else number
        else:
            return {}
    return dict.fromkeys(names, number)
