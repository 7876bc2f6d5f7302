"""Faults planted in a model: values that leave the range of FP16, or lose their digits there.

square      an activation times 1e3 is squared, its root taken, and divided by 1e3
scores      one operand of the MatMul before a Softmax times a large number, undone behind it
softmax     4e4 is added twice to what a Softmax reads (FP32 has steps of 0.008 there: probabilities are 1 % off anyway)
residual    the sum that a normalisation reads is scaled (the normalisation undoes it)
variance    the same, but only its squares leave the range
weights     the weights of a MatMul, Gemm or Conv are scaled, undone behind it
cancel      4096 is added and taken away: in range everywhere, and wrong all the same
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from dmlprep.graph.model import Model

__all__ = ["PLANTS"]


def _constant(graph: ir.Graph, name: str, number: float) -> ir.Value:
    tensor = ir.Tensor(np.asarray(number, np.float32), name=name)
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape([]), const_value=tensor)
    graph.register_initializer(value)
    return value


def _then(value: ir.Value, name: str, op_type: str, number: float | None = None) -> ir.Value:
    """Put an operator behind a value, between it and all that reads it."""
    graph, producer = value.graph, value.producer()
    assert graph is not None
    assert producer is not None
    out = ir.Value(name=f"{name}_out", type=value.type)
    uses = list(value.uses())
    inputs = [value] if number is None else [value, _constant(graph, f"{name}_number", number)]
    graph.insert_after(producer, ir.Node("", op_type, inputs, outputs=[out], name=name))
    for use in uses:
        use.node.replace_input_with(use.idx, out)
    return out


def _before(node: ir.Node, index: int, name: str, op_type: str, number: float) -> None:
    graph, value = node.graph, node.inputs[index]
    assert isinstance(graph, ir.Graph)
    assert value is not None
    out = ir.Value(name=f"{name}_out", type=value.type)
    graph.insert_before(
        node, ir.Node("", op_type, [value, _constant(graph, f"{name}_number", number)], outputs=[out], name=name)
    )
    node.replace_input_with(index, out)


def _pick(found: list[ir.Node], depth: float, what: str) -> ir.Node:
    if not found:
        raise LookupError(f"the model has no {what}")
    return found[min(len(found) - 1, int(depth * len(found)))]


def _is_weight(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None and value.const_value.size > 4096


def _layers(model: Model) -> list[ir.Node]:
    return [n for n in model.ir.graph if n.op_type in ("MatMul", "Gemm", "Conv") and _is_weight(n.inputs[1])]


def _towards_softmax(model: Model) -> list[ir.Node]:
    found = []
    for node in model.ir.graph:
        if node.op_type == "Softmax":
            value = node.inputs[0]
            while value is not None and (maker := value.producer()) is not None and maker.op_type != "MatMul":
                value = maker.inputs[0]
            if value is not None and (maker := value.producer()) is not None:
                found.append(maker)
    return found


def _square(model: Model, depth: float) -> None:
    value = _pick(_layers(model), depth, "layer with weights").outputs[0]
    for name, op_type, number in (
        ("grow", "Mul", 1e3),
        ("plant_square", "Pow", 2.0),
        ("root", "Sqrt", None),
        ("undo", "Mul", 1e-3),
    ):
        value = _then(value, name, op_type, number)


def _scores(model: Model, depth: float) -> None:
    node = _pick(_towards_softmax(model), depth, "MatMul before a Softmax")
    _before(node, 0, "grow", "Mul", 3e4)
    _then(node.outputs[0], "undo", "Mul", 1 / 3e4)


def _softmax(model: Model, depth: float) -> None:
    node = _pick([n for n in model.ir.graph if n.op_type == "Softmax"], depth, "Softmax")
    _before(node, 0, "half_shift", "Add", 4e4)
    _before(node, 0, "shift", "Add", 4e4)


def _norms(model: Model) -> list[ir.Value]:
    return [
        n.inputs[0]
        for n in model.ir.graph
        if n.op_type in ("ReduceMean", "LayerNormalization")
        and n.inputs[0] is not None
        and (n.op_type != "ReduceMean" or any(r.op_type == "Sub" for r in n.outputs[0].consumers()))
    ]


def _residual(model: Model, depth: float, factor: float = 3e4) -> None:
    values = _norms(model)
    if not values:
        raise LookupError("the model has no normalisation")
    value = values[min(len(values) - 1, int(depth * len(values)))]
    keeps = [n for n in value.consumers() if n.op_type not in ("ReduceMean", "Sub", "LayerNormalization")]
    grown = _then(value, "grow", "Mul", factor)
    for node in keeps:
        for index, one in enumerate(node.inputs):
            if one is grown:
                node.replace_input_with(index, value)


def _variance(model: Model, depth: float) -> None:
    _residual(model, depth, 500.0)


def _weights(model: Model, depth: float) -> None:
    node = _pick(_layers(model), depth, "layer with weights")
    weight = node.inputs[1]
    assert weight is not None
    assert weight.const_value is not None
    array = weight.const_value.numpy()
    factor = float(np.float32(3e4 / np.abs(array).max()))
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    tensor = ir.Tensor((array * factor).astype(np.float32), name="grown_weights")
    value = ir.Value(
        name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
    )
    graph.register_initializer(value)
    node.replace_input_with(1, value)
    _then(node.outputs[0], "undo", "Mul", 1 / factor)


def _cancel(model: Model, depth: float) -> None:
    value = _pick(_layers(model), depth, "layer with weights").outputs[0]
    _then(_then(value, "up", "Add", 4096.0), "down", "Sub", 4096.0)


PLANTS: dict[str, Callable[[Model, float], None]] = {
    "square": _square,
    "scores": _scores,
    "softmax": _softmax,
    "residual": _residual,
    "variance": _variance,
    "weights": _weights,
    "cancel": _cancel,
}
"""Name -> what plants it, at a place 0 to 1 of the way through a model; LookupError where it has no such place."""
