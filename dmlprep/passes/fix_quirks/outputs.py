"""Rewrites of outputs that would come back empty."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.model import MappedTensor
from dmlprep.model.tensors import as_mapped
from dmlprep.passes.fix_quirks.editing import Edit
from dmlprep.targets.facts import NodeFacts

__all__ = ["constant_output", "empty_output", "output_before_activation"]


def output_before_activation(facts: NodeFacts, edit: Edit) -> str:
    """The output becomes a copy: the value between has two readers then, and the provider does not fuse it away."""
    old = edit.node.outputs[0]
    if any(v.uses() or v.is_graph_output() for v in edit.node.outputs[1:]):
        return "another of its outputs is read"
    inner = ir.Value(name=edit.name("inner"), shape=old.shape, type=old.type)
    new = ir.Node(
        edit.node.domain,
        edit.node.op_type,
        edit.node.inputs,
        list(edit.node.attributes.values()),
        outputs=[inner, *(ir.Value(name=edit.name("unused")) for _ in edit.node.outputs[1:])],
        name=edit.node.name,
    )
    edit.graph.insert_before(edit.node, new)
    for user, index in list(old.uses()):
        user.replace_input_with(index, inner)
    edit.replace_output(edit.before("Identity", [inner], like=old))
    edit.remove()
    return ""


def empty_output(facts: NodeFacts, edit: Edit) -> str:
    """The empty output is a constant, which lies on the CPU and is not copied."""
    if facts.subgraphs:
        return "it has a subgraph"
    for index, value in enumerate(facts.outputs):
        if value is None or not value.graph_output or value.size != 0:
            continue
        dims = [d for d in value.shape or () if isinstance(d, int)]
        empty = np.zeros(dims, ir.DataType[value.type.upper()].numpy())
        edit.replace_output(edit.constant(empty, "empty"), index)
    if not any(v.uses() or v.is_graph_output() for v in edit.node.outputs):
        edit.remove()
    return ""


def constant_output(facts: NodeFacts, edit: Edit) -> str:
    """The reader gets a constant of its own."""
    done = False
    for index, value in enumerate(edit.node.inputs):
        if value is None or not value.is_graph_output():
            continue
        source = _tensor_of(value)
        if source is None:
            continue
        name = edit.name("own")
        edit.node.replace_input_with(index, edit.initializer(_again(source, name), name))
        done = True
    return "" if done else "the output is computed from constants: simplify first"


def _again(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    """The same values under another name; nothing is read."""
    shape = ir.Shape(tensor.shape.numpy())
    mapped = as_mapped(tensor)
    if mapped is not None:
        return MappedTensor(mapped.path, mapped.offset, mapped.length, mapped.dtype, shape, name)
    return ir.LazyTensor(lambda: tensor, dtype=tensor.dtype, shape=shape, name=name)


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
