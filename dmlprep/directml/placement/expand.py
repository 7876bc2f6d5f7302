"""Inline functions as ONNX Runtime does before it places nodes.

Model-local functions always; operators that ONNX defines by a function body where no provider has a kernel for this
node (GroupNormalization, Mish; Gelu in FP16). Works on a ModelProto; remembers which node each new one comes from.
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

Rename = Callable[[str], str]


def expand_local(model: onnx.ModelProto, origins: dict[str, str]) -> None:
    """Inline every call of a model-local function, in place; ``origins`` gets first output -> label of the call.

    ``graph.model.expansion`` counted the result when the model was opened. It also refuses rings of calls.
    """
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}

    def body_of(node: onnx.NodeProto) -> onnx.FunctionProto | None:
        return functions.get((node.domain, node.op_type, node.overload))

    imported = {o.domain for o in model.opset_import}
    for function in model.functions:
        for opset in function.opset_import:
            if opset.domain not in imported:
                imported.add(opset.domain)
                model.opset_import.append(opset)
    _expand_graph(model.graph, body_of, origins, _taken(model), inside=True)
    del model.functions[:]


def expand(
    model: onnx.ModelProto,
    graph: GraphFacts,
    wanted: Callable[[NodeFacts], bool],
    origins: dict[str, str],
    budget: Budget,
) -> bool:
    """Inline the nodes of ``graph`` (built from ``model``) that are ``wanted``, in place; whether there were any.

    Raises:
        ModelRefused: DP014, they would be more nodes than ``budget`` has left.
    """
    bodies: dict[str, onnx.FunctionProto] = {}
    for inner in graph.all_graphs():
        for node in inner.nodes:
            first = next((o.name for o in node.outputs if o is not None), "")
            if first and wanted(node):
                body = schema_body(node)
                if body is not None:
                    what = f"{node.domain or 'ai.onnx'}:{node.op} and others like it, as ONNX Runtime inlines them,"
                    budget.spend(nodes=_count(body.node), what=what, where=node.name)
                    bodies[first] = body
    if not bodies:
        return False

    def body_of(node: onnx.NodeProto) -> onnx.FunctionProto | None:
        return bodies.get(next((o for o in node.output if o), ""))

    return _expand_graph(model.graph, body_of, origins, _taken(model))


def _taken(model: onnx.ModelProto) -> Names:
    """The names of all values of a model. Nodes may share a name, so a node's name alone does not make a new one."""
    names = Names()
    for graph in protos.graphs(model):
        names.values.update(value.name for value in (*graph.input, *graph.initializer))
        names.values.update(name for node in graph.node for name in node.output)
    return names


def _count(nodes: Iterable[onnx.NodeProto]) -> int:
    """Nodes, those of their subgraphs included; onnx's own bodies nest a graph or two."""
    return sum(1 + sum(_count(graph.node) for graph in protos.bodies(node)) for node in nodes)


def schema_body(node: NodeFacts) -> onnx.FunctionProto | None:
    schema = schema_of(node.domain, node.op, node.since)
    if schema is None:
        return None
    versions = [v for v in schema.function_opset_versions if v <= node.opset]
    if schema.has_function and versions:
        plain: onnx.FunctionProto = onnx.FunctionProto.FromString(schema.get_function_with_opset_version(max(versions)))
        return plain
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.opset]
    if not schema.has_context_dependent_function or not versions:
        return None
    # An input that is left out has an empty type; one whose type is not known would crash onnx's builders.
    types = [onnx.TypeProto() if value is None else value.proto for value in node.inputs]
    if any(t is None for t in types):
        return None
    try:
        proto = ir.serde.serialize_node(node.ir)
        with calls.at_node(proto):
            return calls.function_body(schema, max(versions), proto, [t for t in types if t is not None])
    except OnnxError:
        return None


def _label(node: onnx.NodeProto) -> str:
    return node.name or f"{node.op_type}({next((o for o in node.output if o), '')})"


def _expand_graph(
    graph: onnx.GraphProto,
    body_of: Callable[[onnx.NodeProto], onnx.FunctionProto | None],
    origins: dict[str, str],
    names: Names,
    *,
    inside: bool = False,
) -> bool:
    """Inline the nodes that have a body; with ``inside`` also those of these bodies, and so on."""
    changed = False
    kept: list[onnx.NodeProto] = []
    waiting = [(node, False) for node in reversed(graph.node)]
    while waiting:
        node, made = waiting.pop()
        if not made or inside:
            for inner in protos.bodies(node):
                changed = _expand_graph(inner, body_of, origins, names, inside=inside) or changed
        body = body_of(node) if not made or inside else None
        if body is None:
            kept.append(node)
            continue
        changed = True
        first = next((o for o in node.output if o), "")
        origin = origins.get(first) or _label(node)
        new = list(_instantiate(node, body, names))
        for inner_node in new:
            output = next((o for o in inner_node.output if o), "")
            if output:
                origins[output] = origin
        waiting += [(inner_node, True) for inner_node in reversed(new)]
    if any(a is not b for a, b in zip(kept, graph.node, strict=False)) or len(kept) != len(graph.node):
        copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in kept]
        del graph.node[:]
        graph.node.extend(copies)
    return changed


def _instantiate(call: onnx.NodeProto, body: onnx.FunctionProto, names: Names) -> Iterable[onnx.NodeProto]:
    """The nodes of a body with the call's names and attributes."""
    prefix = _label(call)
    known: dict[str, str] = {"": ""}
    known.update(dict.fromkeys(body.input, ""))
    known.update(zip(body.input, call.input, strict=False))
    outputs = {formal: actual for formal, actual in zip(body.output, call.output, strict=False) if actual}
    known.update({k: v for k, v in outputs.items() if k not in body.input})
    attributes = {a.name: a for a in body.attribute_proto}
    attributes.update({a.name: a for a in call.attribute})

    def rename(name: str) -> str:
        if name not in known:
            known[name] = names.value(f"{prefix}/{name}")
        return known[name]

    for index, node in enumerate(body.node):
        new = onnx.NodeProto.FromString(node.SerializeToString())
        new.name = f"{prefix}/{node.name or f'{node.op_type}_{index}'}"
        _rewrite(new, rename, attributes)
        yield new
    for formal, actual in outputs.items():
        if formal in body.input:  # an output that is an input as it is
            yield onnx.helper.make_node("Identity", [known[formal]], [actual], name=f"{prefix}/Identity")


def _rewrite(node: onnx.NodeProto, rename: Rename, attributes: Mapping[str, AttributeProto]) -> None:
    inputs, outputs = [rename(i) for i in node.input], [rename(o) for o in node.output]
    while inputs and not inputs[-1]:
        inputs.pop()  # trailing optional inputs that the call left out
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
    kept: list[AttributeProto] = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            actual = attributes.get(attribute.ref_attr_name)
            if actual is None:
                continue
            copy = AttributeProto.FromString(actual.SerializeToString())
            copy.name = attribute.name
            kept.append(copy)
            continue
        kept.append(AttributeProto.FromString(attribute.SerializeToString()))
    del node.attribute[:]
    node.attribute.extend(kept)
