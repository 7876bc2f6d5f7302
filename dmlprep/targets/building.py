"""Read a ModelProto into facts, in one walk, linear in its nodes, without reading weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from dmlprep.targets.facts import GraphFacts, NodeFacts, Value

__all__ = ["build", "set_type", "type_name"]

_TYPE_NAMES: dict[int, str] = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}


def build(
    model: onnx.ModelProto,
    *,
    weights: Collection[str] = (),
    origins: Mapping[str, str] | None = None,
) -> GraphFacts:
    """The main graph of a model, subgraphs below it.

    Args:
        model: with value_info from shape inference.
        weights: names of graph inputs that stand for large initializers (see ``model.checking.weightless``).
        origins: first output -> label of the node that it was inlined from.
    """
    opsets = {("" if o.domain == "ai.onnx" else o.domain): int(o.version) for o in model.opset_import}
    builder = _Builder(opsets, set(weights), origins or {}, overridable=model.ir_version < 4)
    return builder.graph(model.graph, "", None, [])


class _Builder:
    def __init__(self, opsets: Mapping[str, int], weights: set[str], origins: Mapping[str, str], overridable: bool):
        self.opsets = opsets
        self.weights = weights
        self.origins = origins
        self.overridable = overridable

    def graph(
        self, proto: onnx.GraphProto, path: str, parent: NodeFacts | None, scopes: list[dict[str, Value]]
    ) -> GraphFacts:
        graph = GraphFacts(path, parent)
        values = graph.values
        for info in proto.input:
            value = values[info.name] = Value(info.name, path)
            set_type(value, info.type)
            if info.name in self.weights and not path:
                value.initializer = value.constant = True
            else:
                value.graph_input = True
                graph.inputs.append(value)
        for tensor in proto.initializer:
            value = values.get(tensor.name) or values.setdefault(tensor.name, Value(tensor.name, path))
            _set_tensor(value, tensor)
            # An initializer that is an input as well can be overridden from IR 4 on only; before, it always is listed.
            value.constant = not value.graph_input or self.overridable
        for sparse in proto.sparse_initializer:
            value = values.setdefault(sparse.values.name, Value(sparse.values.name, path))
            value.type, value.shape = _TYPE_NAMES.get(sparse.values.data_type, ""), tuple(sparse.dims)
            value.initializer = value.constant = True
        infos = {info.name: info for info in proto.value_info}
        infos.update((info.name, info) for info in proto.output)
        chain = [*scopes, values]
        for index, node in enumerate(proto.node):
            self._node(node, index, graph, chain, infos)
        for info in proto.output:
            found = self._find(info.name, chain) or values.setdefault(info.name, Value(info.name, path))
            if found.type == "":
                set_type(found, info.type)
            found.graph_output = True
            graph.outputs.append(found)
        return graph

    @staticmethod
    def _find(name: str, chain: list[dict[str, Value]]) -> Value | None:
        for scope in reversed(chain):
            if name in scope:
                return scope[name]
        return None

    def _node(
        self,
        proto: onnx.NodeProto,
        index: int,
        graph: GraphFacts,
        chain: list[dict[str, Value]],
        infos: Mapping[str, onnx.ValueInfoProto],
    ) -> None:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        node = NodeFacts(proto, graph.path, index, self.opsets.get(domain, 1))
        values = chain[-1]
        for name in proto.output:
            if not name:
                node.outputs.append(None)
                continue
            value = Value(name, graph.path)
            if name in infos:
                set_type(value, infos[name].type)
            value.producer = node
            values[name] = value
            node.outputs.append(value)
        if proto.output:
            origin = self.origins.get(proto.output[0])
            node.inlined = origin is not None
            node.origin = origin or ""
        if node.key == "Constant":
            _set_constant(node)
            graph.constants.append(node)
            return
        for name in proto.input:
            found = self._find(name, chain) if name else None
            if name and found is None:  # produced by nothing: the checker says so; the rules go on
                found = values.setdefault(name, Value(name, graph.path))
            node.inputs.append(found)
            if found is not None and (not found.consumers or found.consumers[-1] is not node):
                found.consumers.append(node)
        for attribute in proto.attribute:
            inner = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else list(attribute.graphs)
            for i, body in enumerate(inner):
                label = attribute.name if attribute.type == onnx.AttributeProto.GRAPH else f"{attribute.name}[{i}]"
                path = f"{graph.path}/{node.label}/{label}" if graph.path else f"{node.label}/{label}"
                node.subgraphs[label] = self.graph(body, path, node, chain)
        if node.subgraphs:
            _note_implicit(node, graph.path)
        graph.nodes.append(node)


def _note_implicit(node: NodeFacts, path: str) -> None:
    inside = {g.path for top in node.subgraphs.values() for g in top.all_graphs()}
    seen: set[int] = set()
    for top in node.subgraphs.values():
        for graph in top.all_graphs():
            used = [v for n in graph.nodes for v in [*n.inputs, *n.implicit] if v is not None]
            for value in [*used, *graph.outputs]:
                if value.graph not in inside and id(value) not in seen:
                    seen.add(id(value))
                    node.implicit.append(value)
                    if not any(c is node for c in value.consumers[-1:]):
                        value.consumers.append(node)


def _set_tensor(value: Value, tensor: onnx.TensorProto) -> None:
    value.type = _TYPE_NAMES.get(tensor.data_type, "")
    value.shape = tuple(tensor.dims)
    value.initializer = value.constant = True
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        value.tensor = tensor


def _set_constant(node: NodeFacts) -> None:
    value = node.outputs[0]
    if value is None:
        return
    value.initializer = value.constant = True
    value.producer = None
    for attribute in node.proto.attribute:
        tensor: onnx.TensorProto | None = None
        if attribute.name == "value":
            tensor = attribute.t
        elif attribute.name in ("value_float", "value_floats"):
            floats = attribute.floats if attribute.name.endswith("s") else attribute.f
            tensor = numpy_helper.from_array(np.asarray(floats, np.float32))
        elif attribute.name in ("value_int", "value_ints"):
            ints = attribute.ints if attribute.name.endswith("s") else attribute.i
            tensor = numpy_helper.from_array(np.asarray(ints, np.int64))
        elif attribute.name in ("value_string", "value_strings"):
            value.type = "string"
            value.shape = (len(attribute.strings),) if attribute.name.endswith("s") else ()
        elif attribute.name == "sparse_value":
            value.type = _TYPE_NAMES.get(attribute.sparse_tensor.values.data_type, "")
            value.shape = tuple(attribute.sparse_tensor.dims)
        if tensor is not None:
            _set_tensor(value, tensor)


def type_name(proto: onnx.TypeProto) -> str:
    """A type as kernel tables write it; a plain tensor is its element type."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return _TYPE_NAMES.get(proto.tensor_type.elem_type, "").replace("undefined", "")
    if kind == "sparse_tensor_type":
        return f"sparse_tensor({_TYPE_NAMES.get(proto.sparse_tensor_type.elem_type, '')})"
    if kind in ("sequence_type", "optional_type"):
        inner = getattr(proto, kind).elem_type
        text = type_name(inner)
        if inner.WhichOneof("value") == "tensor_type":
            text = f"tensor({text})"
        return f"{'seq' if kind == 'sequence_type' else 'optional'}({text})"
    return "map" if kind == "map_type" else ""


def set_type(value: Value, proto: onnx.TypeProto) -> None:
    """Note the type, and the shape where it has one."""
    value.type = type_name(proto)
    kind = proto.WhichOneof("value")
    if kind == "tensor_type" and proto.tensor_type.HasField("shape"):
        value.shape = tuple(
            int(d.dim_value) if d.HasField("dim_value") else (d.dim_param or None) for d in proto.tensor_type.shape.dim
        )
