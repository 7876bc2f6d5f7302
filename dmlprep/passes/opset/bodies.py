"""Replace a node by a function body: the body of an operator that is a function in ONNX, or of a model-local one."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir

from dmlprep.graph.model import protos
from dmlprep.graph.model.constants import held_tensor
from dmlprep.graph.model.walk import attribute_graphs
from dmlprep.graph.rewriting.builder import move_readers
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.opset.build import STANDS_AT, Builder, CannotLower
from dmlprep.process.onnx_worker import calls
from dmlprep.process.onnx_worker.door import OnnxError


def has_body(schema: Any) -> bool:
    """Return whether ONNX defines the operator of an ``OpSchema`` as a function, so that its body can replace a node.

    onnx's type stubs lack these members of OpSchema, so the parameter is ``Any``.
    """
    return bool(schema.has_function or schema.has_context_dependent_function)


def _pick(versions: list[int], target: int) -> int:
    """Choose among the opsets that have a body: the newest up to ``target``, otherwise the oldest."""
    fitting = [v for v in versions if v <= target]
    return max(fitting) if fitting else min(versions)


def expand_operator(builder: Builder, schema: Any) -> list[ir.Value | None]:
    """Write the function body of the node's ONNX operator before the node, and return replacements for its outputs.

    The caller removes the node. A replacement is ``None`` if the body does not compute that output.

    Raises:
        CannotLower: ONNX has no body for these attributes and types or cannot build it, an input's type is unknown, or
            an attribute is a parameter of a model-local function.
    """
    node = builder.node
    if schema.has_context_dependent_function:
        types = []
        for value in node.inputs:
            known = builder.values.type(value)
            if value is not None and known is None:
                raise CannotLower(f"the type of its input {value.name!r} is unknown", in_function=True)
            types.append(known or onnx.TypeProto())
        version = _pick(schema.context_dependent_function_opset_versions, builder.target)
        if any(a.is_ref() for a in node.attributes.values()):
            raise CannotLower("an attribute is a parameter of a model-local function", in_function=True)
        for _, graph in attribute_graphs(node):
            for inner in graph.all_nodes():
                if inner.version is not None:
                    inner.metadata_props[STANDS_AT] = str(inner.version)
        proto = ir.serde.serialize_node(node)
        try:
            with calls.at_node(proto):
                function = calls.function_body(schema, version, proto, types)
        except OnnxError as error:
            raise CannotLower(f"ONNX's function body could not be built: {error.line}") from error
    else:
        version = _pick(schema.function_opset_versions, builder.target)
        function = onnx.FunctionProto.FromString(schema.get_function_with_opset_version(version))
    if function is None or not function.node:
        raise CannotLower("ONNX has no function body for these attributes and types")
    defaults = [a.default_value for a in schema.attributes.values() if a.default_value.type]
    return _splice(builder, function, defaults, {o.domain: o.version for o in function.opset_import}.get("", version))


def expand_call(builder: Builder, function: ir.Function, version: int) -> list[ir.Value | None]:
    """Write the body of a model-local function before a call of it, and return replacements for the call's outputs.

    The caller removes the call. ``version`` is the opset that the function imports for the default domain.

    Raises:
        CannotLower: an attribute of the call is a parameter of the model-local function that contains it.
    """
    proto = ir.serde.serialize_function(function)
    return _splice(builder, proto, list(proto.attribute_proto), version)


def _splice(
    builder: Builder, function: onnx.FunctionProto, defaults: list[onnx.AttributeProto], version: int
) -> list[ir.Value | None]:
    node = builder.node
    if any(attr.is_ref() for attr in node.attributes.values()):
        raise CannotLower("an attribute is a parameter of a model-local function", in_function=True)
    bound = {a.name: a for a in defaults}
    bound |= {name: ir.serde.serialize_attribute(attr) for name, attr in node.attributes.items()}
    graph_proto = onnx.GraphProto(name=function.name)
    graph_proto.node.extend(function.node)
    graph_proto.input.extend(onnx.ValueInfoProto(name=n) for n in function.input)
    produced = {n for part in function.node for n in part.output if n} | set(function.input)
    graph_proto.output.extend(onnx.ValueInfoProto(name=n) for n in function.output if n in produced)
    _bind(graph_proto, bound)
    for inner_proto in graph_proto.node:
        for sub in protos.bodies(inner_proto):  # new names: two expansions must not share them
            _rename(sub, builder.names, f"{builder.base}/", {})
    # A subgraph that is an attribute of the call (SequenceMap's body) reads values around the call by name.
    graph = ir.serde.deserialize_graph(graph_proto)
    outer = _outer_values(builder)
    for inner in list(graph.all_nodes()):
        for i, value in enumerate(inner.inputs):
            if value is not None and value.producer() is None and value.graph is None and value.name in outer:
                inner.replace_input_with(i, outer[value.name])
    replaced: dict[ir.Value, ir.Value | None] = {}
    for i, formal in enumerate(graph.inputs):
        replaced[formal] = builder.input(i)
        move_readers(formal, replaced[formal])
    outputs = list(graph.outputs)
    by_name = {v.name: v for v in outputs}
    graph.outputs.clear()
    for inner in list(graph):
        graph.remove(inner)
        if inner.op_type == "Constant" and not inner.domain and not any(a.is_ref() for a in inner.attributes.values()):
            values = [_constant(builder, inner)]
        else:
            local = version if not inner.domain else None
            asked = [bool(v.name) and bool(v.uses() or v in outputs) for v in inner.outputs]
            if asked:  # a third-party operator may have no output
                asked[0] = asked[0] or bool(inner.outputs[0].name)
            values = builder.place(inner, local, hint=inner.name or inner.op_type, asked=asked)
        for before, after in zip(inner.outputs, values, strict=True):
            if before is not after:
                replaced[before] = after
                move_readers(before, after)

    def last(value: ir.Value | None) -> ir.Value | None:
        while value is not None and value in replaced:
            value = replaced[value]
        return value

    return [last(by_name.get(name)) for name in function.output]


def _outer_values(builder: Builder) -> dict[str, ir.Value]:
    """Map from name to value: everything that nodes in the subgraphs of the builder's node read."""
    bodies = [a.as_graph() for a in builder.node.attributes.values() if a.type == ir.AttributeType.GRAPH]
    inner = [node for body in bodies for node in body.all_nodes()]
    return {v.name: v for node in inner for v in node.inputs if v is not None and v.name}


def _constant(builder: Builder, node: ir.Node) -> ir.Value:
    tensor = held_tensor(node.outputs[0])
    if tensor is None:
        raise CannotLower("a constant of its function body cannot be read")
    if tensor.dtype == ir.DataType.STRING:
        return builder.tensor(tensor)
    return builder.tensor(ir.tensor(tensor.numpy(), name=""), tensor.numpy())


def _bind(graph: onnx.GraphProto, bound: dict[str, onnx.AttributeProto]) -> None:
    """Replace references to function attributes by the attributes in ``bound``, in place, also in subgraphs.

    A reference to a name that is not in ``bound`` is removed.
    """
    for node in graph.node:
        for sub in protos.bodies(node):
            _bind(sub, bound)
        copies = []
        for attr in node.attribute:
            value = bound.get(attr.ref_attr_name) if attr.ref_attr_name else attr
            if value is not None:
                copy = onnx.AttributeProto.FromString(value.SerializeToString())
                copy.name = attr.name
                copies.append(copy)
        del node.attribute[:]
        node.attribute.extend(copies)


def _rename(graph: onnx.GraphProto, names: Names, prefix: str, outer: dict[str, str]) -> None:
    table = dict(outer)
    for info in graph.input:
        table[info.name] = info.name = names.new(prefix + info.name)
    for tensor in graph.initializer:
        if tensor.name not in table:
            table[tensor.name] = names.new(prefix + tensor.name)
        tensor.name = table[tensor.name]
    for node in graph.node:
        node.name = names.new(prefix + (node.name or node.op_type))
        for name in node.output:
            if name:
                table[name] = names.new(prefix + name)
    for node in graph.node:
        node.input[:] = [table.get(n, n) for n in node.input]
        node.output[:] = [table.get(n, n) for n in node.output]
        for sub in protos.bodies(node):
            _rename(sub, names, prefix, table)
    for info in [*graph.output, *graph.value_info]:
        info.name = table.get(info.name, info.name)
