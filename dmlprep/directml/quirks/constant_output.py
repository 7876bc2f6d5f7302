"""A constant that is a graph output and is also read by nodes: the returned output is empty."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk, Value
from dmlprep.graph.model import MappedTensor
from dmlprep.graph.model.tensors import as_mapped


def _folds(value: Value) -> bool:
    inputs = value.producer.inputs if value.producer is not None else []
    return value.constant or (bool(inputs) and all(v is None or v.constant for v in inputs))


def _matches(node: NodeFacts) -> str:
    """The reason, if the node reads a graph output that is a constant, or that one node computes from constants alone.

    Empty otherwise.
    """
    read = (v for v in node.inputs if v is not None and v.graph_output)
    return next((f"its input {value.name} is a constant output of the model" for value in read if _folds(value)), "")


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Give the reader a constant of its own, with the same values."""
    done = False
    for index, value in enumerate(edit.node.inputs):
        source = _tensor_of(value) if value is not None and value.is_graph_output() else None
        if source is not None:
            edit.set_input(index, edit.initializer(_again(source), "own"))
            done = True
    return "" if done else "the output is computed from constants: put the step simplify before fix-quirks"


def _again(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A copy of the tensor without a name; its values are not read before the model is saved."""
    shape = ir.Shape(tensor.shape.numpy())
    mapped = as_mapped(tensor)
    if mapped is not None:
        return MappedTensor(mapped.path, mapped.offset, mapped.length, mapped.dtype, shape, "")
    return ir.LazyTensor(lambda: tensor, dtype=tensor.dtype, shape=shape)


def _tensor_of(value: ir.Value) -> ir.TensorProtocol | None:
    if value.const_value is not None and value.is_initializer():
        return value.const_value
    node = value.producer()
    if node is None:
        return None
    if node.op_type == "Constant" and "value" in node.attributes:
        return node.attributes["value"].as_tensor()
    if node.op_type == "Identity" and node.inputs[0] is not None:
        return _tensor_of(node.inputs[0])
    return None


QUIRK = Quirk(
    id="constant-output",
    code="DP621",
    title="a constant output that nodes read",
    ops=(),
    outcome="empty output",
    matches=_matches,
    rewrite=_rewrite,
)
