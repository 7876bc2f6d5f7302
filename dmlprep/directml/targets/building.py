"""Build facts from a model and the knowledge of its values: one walk, which reads no weights."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import onnx
import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.graph.analysis.attributes import constant_tensor
from dmlprep.graph.analysis.knowledge import Knowledge, constant_of, dims_of, type_of
from dmlprep.graph.analysis.schemas import type_string
from dmlprep.graph.analysis.shapes import Inference
from dmlprep.graph.analysis.symbolic import known_in_parts
from dmlprep.graph.model.dims import Dim
from dmlprep.graph.model.sources import Sources
from dmlprep.graph.model.walk import attribute_graphs, join_path

_TENSOR_BYTES = 1024  # limit of an initializer whose values the rules read


def build(model: ir.Model, known: Knowledge, origins: Mapping[str, str] | None = None) -> GraphFacts:
    """Return the facts of a model's main graph, which contain those of its subgraphs.

    Args:
        known: the types and values that are known of the model.
        origins: first output of a node from an inlined body -> label of the node that was inlined.
    """
    return _Builder(model, known, origins or {}).graph(model.graph, "", None)


class _Builder:
    def __init__(self, model: ir.Model, known: Knowledge, origins: Mapping[str, str]) -> None:
        self.known = known
        self.origins = origins
        self.sources = Sources(model)
        self.ir_version = model.ir_version
        self.opsets = {("" if domain == "ai.onnx" else domain): v for domain, v in model.graph.opset_imports.items()}
        self.values: dict[ir.Value, Value] = {}
        self.read: dict[int, tuple[onnx.TypeProto, str, tuple[Dim, ...] | None]] = {}

    def graph(self, graph: ir.Graph, path: str, parent: NodeFacts | None) -> GraphFacts:
        facts = GraphFacts(path, parent)
        for value in graph.initializers.values():
            self._set_initializer(value, self._value(value, path))
        for value in graph.inputs:
            value_facts = self._value(value, path)
            value_facts.graph_input = True
            facts.inputs.append(value_facts)
        for node in graph:
            self._node(node, facts)
        for value in graph.outputs:
            value_facts = self._value(value, path)
            value_facts.graph_output = True
            facts.outputs.append(value_facts)
        return facts

    def _value(self, value: ir.Value, path: str) -> Value:
        """Return the facts of a value, made at its first use; ``path`` is the path of the graph that uses it first."""
        value_facts = self.values.get(value)
        if value_facts is None:
            value_facts = self.values[value] = Value(value.name or "", path)
            proto = self.known.type(value)
            if proto is not None:
                if id(proto) not in self.read:  # many values share a type
                    self.read[id(proto)] = proto, *_read_type(proto)
                _set_read(value_facts, *self.read[id(proto)])
        return value_facts

    def _set_initializer(self, value: ir.Value, facts: Value) -> None:
        tensor = value.const_value
        facts.initializer = True
        facts.constant = constant_of(value, self.ir_version) is not None
        if tensor is not None and (tensor.dtype == ir.DataType.STRING or tensor.nbytes <= _TENSOR_BYTES):
            facts.tensor = tensor

    def _node(self, node: ir.Node, graph: GraphFacts) -> None:
        facts = NodeFacts(node, graph.path, self.opsets.get(node.domain, 1), len(graph.nodes), sources=self.sources)
        for output in node.outputs:
            output_facts = self._value(output, graph.path) if output.name else None
            if output_facts is not None:
                output_facts.graph, output_facts.producer = graph.path, facts
            facts.outputs.append(output_facts)
        if facts.outputs:
            facts.origin = self.origins.get(node.outputs[0].name or "", "")
        if facts.key == "Constant":
            graph.constants.append(facts)
            if (constant := facts.output()) is not None:
                _set_constant(constant, constant_tensor(node))
            return
        for value in node.inputs:
            input_facts = None if value is None else self._value(value, graph.path)
            facts.inputs.append(input_facts)
            if input_facts is not None and (not input_facts.consumers or input_facts.consumers[-1] is not facts):
                input_facts.consumers.append(facts)
        if facts.key == "Reshape" and facts.attribute("allowzero", 0) and (shape := facts.input(1)) is not None:
            shape.elements = known_in_parts(self.known, node.inputs[1])  # type: ignore[arg-type]
        if bodies := list(attribute_graphs(node)):
            facts.subgraphs = {name: self.graph(body, join_path(facts.path, name), facts) for name, body in bodies}
            _note_implicit(facts)
        graph.nodes.append(facts)


def _note_implicit(node: NodeFacts) -> None:
    graphs = [graph for top in node.subgraphs.values() for graph in top.all_graphs()]
    inside = {graph.path for graph in graphs}
    used: dict[Value, None] = {}
    for graph in graphs:
        used.update((v, None) for n in graph.nodes for v in (*n.inputs, *n.implicit) if v is not None)
        used.update((v, None) for v in graph.outputs)
    node.implicit = [value for value in used if value.graph not in inside]
    for value in node.implicit:
        if value.consumers[-1:] != [node]:
            value.consumers.append(node)


def _set_constant(value: Value, tensor: ir.TensorProtocol | None) -> None:
    value.initializer = value.constant = True
    value.producer, value.tensor = None, tensor
    if tensor is not None:
        set_type(value, type_of(tensor))


def set_type(value: Value, proto: onnx.TypeProto) -> None:
    """Set ``type`` and ``proto`` of ``value`` from an ONNX type, and its ``shape`` if the type has one.

    ``type`` gets the form of kernel tables: a plain tensor is its element type.
    """
    _set_read(value, proto, *_read_type(proto))


def _read_type(proto: onnx.TypeProto) -> tuple[str, tuple[Dim, ...] | None]:
    text = type_string(proto)
    return sys.intern(text[len("tensor(") : -1] if text.startswith("tensor(") else text), dims_of(proto)


def _set_read(value: Value, proto: onnx.TypeProto, text: str, dims: tuple[Dim, ...] | None) -> None:
    value.proto, value.type = proto, text
    if dims is not None:
        value.shape = dims


def infer_contrib(model: ir.Model, graph: GraphFacts) -> None:
    """Infer missing types and shapes after com.microsoft operators, and set them in ``graph``.

    onnx's inference of the whole graph stops at such operators; the node-by-node inference continues through them.
    Only values with an unknown size change. Nothing changes if shapes contradict each other, or if the outputs of
    com.microsoft operators and of operators with since_version 1 all have shapes.
    """
    nodes = list(graph.all_nodes())
    own = (n for n in nodes if n.domain == "com.microsoft" or n.since == 1)
    if not any(v is not None and v.shape is None for n in own for v in n.outputs):
        return
    try:
        known = Inference.of(model)
    except ModelRefused:  # shapes that contradict each other: the checker's finding reports it
        return
    for node in nodes:
        for output, facts in zip(node.ir.outputs, node.outputs, strict=True):
            proto = known.types.get(output)
            if facts is not None and proto is not None and not facts.static:
                set_type(facts, proto)
