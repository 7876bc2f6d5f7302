"""A constant that is a graph output and is read by nodes: it comes back empty."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.graph.model import MappedTensor
from dmlprep.graph.model.tensors import as_mapped


def _folds(value: Value) -> bool:
    if value.constant:
        return True
    node = value.producer
    return node is not None and bool(node.inputs) and all(v is None or v.constant for v in node.inputs)


def _matches(node: NodeFacts) -> str:
    """The node reads a constant that is a graph output as well."""
    for value in node.inputs:
        if value is not None and value.graph_output and _folds(value):
            return f"the output {value.name} is constant"
    return ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Give the reader a constant of its own, with the same values."""
    done = False
    for index, value in enumerate(edit.node.inputs):
        if value is None or not value.is_graph_output():
            continue
        source = _tensor_of(value)
        if source is None:
            continue
        edit.node.replace_input_with(index, edit.initializer(_again(source), "own"))
        done = True
    return "" if done else "the output is computed from constants: simplify first"


def _again(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """The same tensor once more, without a name; its values are not read."""
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
    sources=(MEASURED,),
    matches=_matches,
    rewrite=_rewrite,
)
