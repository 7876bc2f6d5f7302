"""Inputs of one number that alone decide which branch of an If is taken."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.model.constants import held_tensor
from dmlprep.graph.model.walk import main_graphs


def deciding_inputs(model: ir.Model) -> dict[str, str]:
    """Inputs that decide an If of the model, and a number that the condition compares them with, as TOML writes it.

    The number is ``VALUE`` where the condition compares with none.
    """
    found: dict[str, str] = {}
    for node in (node for graph in main_graphs(model) for node in graph):
        if node.domain in ("", "ai.onnx") and node.op_type == "If" and node.inputs:
            found.update(_behind(node.inputs[0], model.graph))
    return found


def _behind(condition: ir.Value | None, main: ir.Graph) -> dict[str, str]:
    """The inputs behind a condition, nothing where one of them is more than a number, or is made in a body."""
    stack, seen = [condition], set[ir.Value]()
    names: list[str] = []
    number = "VALUE"
    while stack:
        value = stack.pop()
        if value is None or value in seen:
            continue
        seen.add(value)
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
