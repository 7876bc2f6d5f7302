"""Inline functions as ONNX Runtime does before it places nodes.

Model-local functions are always inlined. Operators that ONNX defines by a function body are inlined if no provider has
a kernel for the node (GroupNormalization, Mish; Gelu in FP16). The code works on a ModelProto, and remembers the
original of each new node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import onnx
import onnx_ir as ir
from onnx import AttributeProto

from dmlprep.directml.targets.facts import GraphFacts, NodeFacts
from dmlprep.graph.analysis.schemas import schema_of
from dmlprep.graph.model import protos
from dmlprep.graph.model.budget import Budget
from dmlprep.graph.rewriting.names import Names
from dmlprep.process.onnx_worker import calls
from dmlprep.process.onnx_worker.door import OnnxError

_BodyOf = Callable[[onnx.NodeProto], onnx.FunctionProto | None]


def expand_local(model: onnx.ModelProto, origins: dict[str, str]) -> None:
    """Inline every call of a model-local function into ``model``, in place, and remove the functions from it.

    The function adds to ``origins``: the first output of each new node -> the label of the call. It has no limit:
    ``graph.model.expansion`` counted the nodes, and refused cycles of calls, when the model was opened.
    """
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    imported = {o.domain for o in model.opset_import}
    for function in model.functions:
        for opset in function.opset_import:
            if opset.domain not in imported:
                imported.add(opset.domain)
                model.opset_import.append(opset)
    names = _value_names(model)
    _expand_graph(model.graph, lambda n: functions.get((n.domain, n.op_type, n.overload)), origins, names, inside=True)
    del model.functions[:]


def expand(
    model: onnx.ModelProto,
    graph: GraphFacts,
    wanted: Callable[[NodeFacts], bool],
    origins: dict[str, str],
    budget: Budget,
) -> bool:
    """Inline nodes of ``model`` whose operator ONNX defines by a function body, in place.

    Return whether any node was inlined.

    Args:
        graph: the facts built from ``model``.
        wanted: returns True for a node to inline; a node without a body stays.
        origins: gets the first output of each new node -> the label of the node that it replaces.

    Raises:
        ModelRefused: DP014, the result would have more nodes than ``budget`` has left.
        ToolFailed: onnx crashes on a node, or needs more than its limits.
    """
    bodies: dict[str, onnx.FunctionProto] = {}
    for node in graph.all_nodes():
        first = next((o.name for o in node.outputs if o is not None), "")
        if first and wanted(node) and (body := schema_body(node)) is not None:
            what = f"{node.domain or 'ai.onnx'}:{node.op} and similar nodes, which ONNX Runtime inlines,"
            budget.spend(nodes=_count(body.node), what=what, where=node.name)
            bodies[first] = body
    return _expand_graph(model.graph, lambda node: bodies.get(_first(node)), origins, _value_names(model))


def _value_names(model: onnx.ModelProto) -> Names:
    """The names of all values of a model, as a registry that makes new ones; names of nodes may occur twice."""
    names = Names()
    for graph in protos.graphs(model):
        names.values.update(value.name for value in (*graph.input, *graph.initializer))
        names.values.update(name for node in graph.node for name in node.output)
    return names


def _count(nodes: Iterable[onnx.NodeProto]) -> int:
    """The number of nodes, including those in subgraphs."""
    return sum(1 + sum(_count(graph.node) for graph in protos.bodies(node)) for node in nodes)


def schema_body(node: NodeFacts) -> onnx.FunctionProto | None:
    """Return the function body that ONNX's schema has for a node; ``None`` if it has none at the node's opset.

    Also ``None`` if the body depends on the node, and an input's type is unknown or onnx refuses to build the body.

    Raises:
        ToolFailed: onnx crashes on the node, or needs more than its limits.
    """
    schema = schema_of(node.domain, node.op, node.since)
    if schema is None:
        return None
    versions = [v for v in schema.function_opset_versions if v <= node.opset]
    if schema.has_function and versions:
        plain: onnx.FunctionProto = onnx.FunctionProto.FromString(schema.get_function_with_opset_version(max(versions)))
        plain.attribute_proto.extend(a.default_value for a in schema.attributes.values() if a.default_value.name)
        return plain
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.opset]
    if not schema.has_context_dependent_function or not versions:
        return None
    # An omitted input has an empty type; an input of unknown type would crash onnx's builders.
    types = [onnx.TypeProto() if value is None else value.proto for value in node.inputs]
    if any(t is None for t in types):
        return None
    try:
        proto = ir.serde.serialize_node(node.ir)
        with calls.at_node(proto):
            return calls.function_body(schema, max(versions), proto, [t for t in types if t is not None])
    except OnnxError:
        return None


def _first(node: onnx.NodeProto) -> str:
    """The name of the first output that is not omitted; empty if there is none."""
    return next(filter(None, map(str, node.output)), "")


def _label(node: onnx.NodeProto) -> str:
    return node.name or f"{node.op_type}({_first(node)})"


def _expand_graph(
    graph: onnx.GraphProto,
    body_of: _BodyOf,
    origins: dict[str, str],
    names: Names,
    *,
    inside: bool = False,
) -> bool:
    """Inline the nodes of a graph and its subgraphs that have a body, in place; return whether there were any.

    Args:
        body_of: returns the body of a node; ``None`` for a node to keep.
        inside: also inline nodes of the inlined bodies, at any depth.
    """
    changed = False
    remaining: list[onnx.NodeProto] = []
    waiting = [(node, True) for node in reversed(graph.node)]
    while waiting:
        node, expands = waiting.pop()
        for inner in protos.bodies(node) if expands else ():
            changed = _expand_graph(inner, body_of, origins, names, inside=inside) or changed
        body = body_of(node) if expands else None
        if body is None:
            remaining.append(node)
            continue
        changed = True
        origin = origins.get(_first(node)) or _label(node)
        new = list(_instantiate(node, body, names))
        origins.update((_first(inner_node), origin) for inner_node in new if _first(inner_node))
        waiting += [(inner_node, inside) for inner_node in reversed(new)]
    if any(a is not b for a, b in zip(remaining, graph.node, strict=False)) or len(remaining) != len(graph.node):
        copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in remaining]
        del graph.node[:]
        graph.node.extend(copies)
    return changed


def _instantiate(call: onnx.NodeProto, body: onnx.FunctionProto, names: Names) -> Iterable[onnx.NodeProto]:
    """Copies of a body's nodes for one call, with its inputs, outputs and attributes; other values get new names."""
    prefix = _label(call)
    known: dict[str, str] = {"": "", **dict.fromkeys(body.input, ""), **dict(zip(body.input, call.input, strict=False))}
    outputs = {formal: actual for formal, actual in zip(body.output, call.output, strict=False) if actual}
    known.update({k: v for k, v in outputs.items() if k not in body.input})
    attributes = {a.name: a for a in (*body.attribute_proto, *call.attribute)}

    def rename(name: str) -> str:
        if name not in known:
            known[name] = names.value(f"{prefix}/{name}")
        return known[name]

    for index, node in enumerate(body.node):
        new = onnx.NodeProto.FromString(node.SerializeToString())
        new.name = f"{prefix}/{node.name or f'{node.op_type}_{index}'}"
        if not new.metadata_props:
            new.metadata_props.extend(call.metadata_props)
        _rewrite(new, rename, attributes)
        yield new
    for formal, actual in outputs.items():
        if formal in body.input:  # an output that is also an input
            yield onnx.helper.make_node("Identity", [known[formal]], [actual], name=f"{prefix}/Identity")


def _rewrite(node: onnx.NodeProto, rename: Callable[[str], str], attributes: Mapping[str, AttributeProto]) -> None:
    inputs, outputs = [rename(i) for i in node.input], [rename(o) for o in node.output]
    while inputs and not inputs[-1]:
        inputs.pop()  # trailing optional inputs that the call omits
    del node.input[:], node.output[:]
    node.input.extend(inputs)
    node.output.extend(outputs)
    for graph in protos.bodies(node):
        for value in [*graph.input, *graph.output, *graph.value_info]:
            value.name = rename(value.name)
        for tensor in graph.initializer:
            tensor.name = rename(tensor.name)
        for inner in graph.node:
            _rewrite(inner, rename, attributes)
    copies: list[AttributeProto] = []
    for attribute in node.attribute:
        actual = attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if actual is not None:
            copies.append(AttributeProto.FromString(actual.SerializeToString()))
            copies[-1].name = attribute.name
    del node.attribute[:]
    node.attribute.extend(copies)
