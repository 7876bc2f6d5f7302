"""Find the type of every value of a model from the graph inputs and the operators' schemas.

A type in value_info counts only where these give none.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from dmlprep.graph.analysis.attributes import constant_tensor
from dmlprep.graph.model.texts import as_text
from dmlprep.graph.model.walk import attribute_graphs
from dmlprep.passes.precision.signature import Signature, signature

Types = dict[ir.Value, ir.TypeProtocol | None]
"""Map from a value to its type, or ``None`` if the type is unknown."""

FROM_ATTRIBUTE: dict[str, tuple[str, ir.DataType | None]] = {
    # operator -> attribute with the output's element type, and the type without it (None: the first input's type)
    **dict.fromkeys(("BitCast", "Cast"), ("to", None)),
    **dict.fromkeys(("Bernoulli", "EyeLike", "RandomNormalLike", "RandomUniformLike"), ("dtype", None)),
    **dict.fromkeys(("RandomNormal", "RandomUniform"), ("dtype", ir.DataType.FLOAT)),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), ("output_datatype", ir.DataType.FLOAT)),
    "MelWeightMatrix": ("output_datatype", ir.DataType.FLOAT),
    "Multinomial": ("dtype", ir.DataType.INT32),
}


def is_wide(kind: ir.TypeProtocol | None) -> bool:
    """Return whether a type is a tensor of FP32, FP64 or bfloat16 (no sequence, no optional)."""
    from dmlprep.passes.precision.fp16 import WIDE

    return isinstance(kind, ir.TensorType) and kind.dtype in WIDE


def computing_type(node: ir.Node, types: Types, opsets: Mapping[str, int]) -> ir.DataType | None:
    """The floating-point type in which a node computes: that of its data; ``None`` if it has no floating-point values.

    Inputs and outputs that cannot be FP16 (scales, statistics) count only if no others can.
    """
    known = signature(node, opsets)
    ports = [(v, known.input(i) if known else None) for i, v in enumerate(node.inputs)]
    ports += [(v, known.output(i) if known else None) for i, v in enumerate(node.outputs)]
    data = [v for v, port in ports if port is not None and port.variable and ir.DataType.FLOAT16 in port.floats]
    for value in data or [v for v, _ in ports]:
        kind = types.get(value) if value is not None else None
        if isinstance(kind, ir.TensorType) and kind.dtype.is_floating_point():
            return kind.dtype
    return None


def solve_types(model: ir.Model) -> Types:
    """Return the types of all values of the main graph and its subgraphs; the caller inlines functions before."""
    types: Types = {}
    _graph(model.graph, types, model.opset_imports)
    return types


def _graph(graph: ir.Graph, types: Types, opsets: Mapping[str, int]) -> None:
    for value in graph.inputs:
        types.setdefault(value, value.type)
    for value in graph.initializers.values():
        types[value] = ir.TensorType(value.const_value.dtype) if value.const_value is not None else value.type
    for node in graph:
        _node(node, types, opsets)


def _node(node: ir.Node, types: Types, opsets: Mapping[str, int]) -> None:
    _enter(node, types)
    for _, graph in attribute_graphs(node):
        _graph(graph, types, opsets)
    inside = _leave(node, types)
    known = signature(node, opsets)
    bound: dict[str, ir.TypeProtocol] = {}
    if known is not None:
        for index, value in enumerate(node.inputs):
            port = known.input(index)
            kind = types.get(value) if value is not None else None
            if port is not None and port.variable and kind is not None:
                bound.setdefault(port.variable, kind)
    for index, value in enumerate(node.outputs):
        kind = inside[index] if index < len(inside) else None
        kind = kind or _output(node, index, known, bound, types)
        types[value] = kind or value.type


def _enter(node: ir.Node, types: Types) -> None:
    """Set the types of the inputs of a Loop's or Scan's body in ``types``, from the inputs of the node."""
    body = next((graph for name, graph in attribute_graphs(node) if name == "body"), None)
    if body is None or node.op_type not in ("Loop", "Scan"):
        return
    skip = 2 if node.op_type == "Loop" else len(node.inputs) - len(body.inputs)
    for index, value in enumerate(body.inputs[2 if node.op_type == "Loop" else 0 :]):
        outer = node.inputs[skip + index] if skip + index < len(node.inputs) else None
        types[value] = (types.get(outer) if outer is not None else None) or value.type


def _leave(node: ir.Node, types: Types) -> list[ir.TypeProtocol | None]:
    """The types of the outputs of an If, Loop or Scan, from the outputs of its subgraphs; empty for other nodes."""
    results: list[ir.TypeProtocol | None] = []
    if node.op_type not in ("If", "Loop", "Scan"):
        return results
    for name, graph in attribute_graphs(node):
        if name in ("then_branch", "else_branch", "body"):
            kinds = [types.get(v) or v.type for v in graph.outputs][1 if node.op_type == "Loop" else 0 :]
            results = [a or b for a, b in zip(results, kinds, strict=True)] if results else kinds
    return results


def _output(
    node: ir.Node, index: int, known: Signature | None, bound: Mapping[str, ir.TypeProtocol], types: Types
) -> ir.TypeProtocol | None:
    special = _special(node, index, types)
    port = known.output(index) if known is not None else None
    if special is not None or port is None:
        return special
    return bound.get(port.variable, ir.TensorType(port.only) if port.only is not None else None)


def _special(node: ir.Node, index: int, types: Types) -> ir.TypeProtocol | None:
    if node.domain:
        return None
    op, attributes = node.op_type, node.attributes
    first = types.get(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
    if op in FROM_ATTRIBUTE:
        name, default = FROM_ATTRIBUTE[op]
        if name in attributes and not attributes[name].is_ref():
            return ir.TensorType(_dtype(attributes[name]))
        return ir.TensorType(default) if default is not None else first
    if op == "Constant":
        tensor = constant_tensor(node)
        return ir.TensorType(tensor.dtype) if tensor is not None else None
    if op == "ConstantOfShape":
        value = attributes.get("value")
        return ir.TensorType(value.as_tensor().dtype if value is not None else ir.DataType.FLOAT)
    if op == "LayerNormalization" and index > 0:
        return ir.TensorType(ir.DataType(attributes.get_int("stash_type", 1)))
    if op == "DequantizeLinear":
        if output_dtype := attributes.get_int("output_dtype", 0):
            return ir.TensorType(ir.DataType(output_dtype))
        return types.get(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if op in ("SequenceAt", "ConcatFromSequence") and isinstance(first, ir.SequenceType):
        return first.elem_type
    if op in ("SequenceConstruct", "SplitToSequence") and isinstance(first, ir.TensorType):
        return ir.SequenceType(first)
    if op == "Optional" and first is not None:
        return ir.OptionalType(first)
    if op == "OptionalGetElement":
        return first.elem_type if isinstance(first, ir.OptionalType) else first
    return None


def _dtype(attribute: ir.Attr) -> ir.DataType:
    # Cast-1 writes its type as text
    if attribute.type == ir.AttributeType.STRING:
        return ir.DataType[as_text(attribute)]
    return ir.DataType(attribute.as_int())
