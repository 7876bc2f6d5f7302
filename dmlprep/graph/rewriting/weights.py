"""Remove weights from a model before a third-party tool reads it, and restore the same tensors afterwards.

A weight that is a graph input cannot be read, rounded, merged or folded by the tool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.analysis.attributes import constant_tensor
from dmlprep.graph.analysis.shapes import Inference, write_types
from dmlprep.graph.model.dims import copy_shape
from dmlprep.graph.model.walk import main_graphs, nodes
from dmlprep.graph.rewriting.builder import as_initializer, set_type
from dmlprep.graph.rewriting.names import Names

KEPT_BYTES = 4 << 10
"""Most bytes of a constant that stays: shapes, axes, epsilons, biases. Tools fold these exactly, or do not change them.
"""


@dataclass
class RemovedWeights:
    """The tensors that ``take_out`` removed: name of the input that replaces a tensor -> tensor.

    ``defaults`` are the names of those that were defaults of inputs, which a caller may override (IR 4 and later).
    """

    tensors: dict[str, ir.TensorProtocol] = field(default_factory=dict)
    defaults: set[str] = field(default_factory=set)


def take_out(model: ir.Model) -> RemovedWeights:
    """Turn large tensors and all defaults of inputs into plain inputs, and return these tensors.

    Large is more than ``KEPT_BYTES`` bytes. Weights of subgraphs become inputs of the main graph. Constant nodes with a
    weight are removed, unless they are outputs of their graph. ``model`` is changed.

    Weights inside model-local functions stay. Other Constant nodes of the main graph become initializers: onnxsim would
    run each in ONNX Runtime for that.
    """
    weights = RemovedWeights()
    main = model.graph
    names = Names()
    names.values.update(v.name for v in main.inputs if v.name and v.name not in main.initializers)
    names.values.update(v.name for node in nodes(model) for v in node.outputs if v.name)
    inputs = set(main.inputs)
    free = model.ir_version >= 4
    for graph in list(main_graphs(model)):
        for name, value in list(graph.initializers.items()):
            tensor = value.const_value
            overridable = free and value in inputs
            if tensor is None or (tensor.nbytes <= KEPT_BYTES and not overridable):
                continue
            del graph.initializers[name]
            if overridable:
                weights.defaults.add(name)
            elif value not in inputs:
                value.name = names.value(name)
                set_type(value, tensor)
                main.inputs.append(value)
            names.values.add(value.name or "")
            value.const_value = None
            weights.tensors[value.name or ""] = tensor
        for node in list(graph):
            tensor = _held(node)
            if tensor is None or node.outputs[0].is_graph_output():
                continue
            old, is_small = node.outputs[0], tensor.nbytes <= KEPT_BYTES
            if is_small and (graph is not main or not old.name):
                continue
            names.values.discard(old.name or "")
            new = ir.Value(name=names.value(old.name or "weight"))
            old.replace_all_uses_with(new)
            graph.remove(node, safe=True)
            if is_small:
                as_initializer(graph, new, tensor)
                continue
            set_type(new, tensor)
            main.inputs.append(new)
            weights.tensors[new.name or ""] = tensor
    return weights


def _held(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the tensor of a Constant node; ``None`` for text and for other nodes."""
    tensor = constant_tensor(node) if node.op_type == "Constant" and not node.domain else None
    return None if tensor is None or tensor.dtype == ir.DataType.STRING else tensor


def put_back(proto: onnx.ModelProto, weights: RemovedWeights, original: ir.Model) -> ir.Model:
    """Return a tool's result as a model, with its weights and everything that tools drop from the ``original``.

    Inputs and outputs keep their types, denotations and documentation. Values of the same name keep their denotations
    and metadata; so do the nodes that compute them, if the operator is the same. The model keeps its functions,
    producer and metadata. The IR version becomes at least 4, where constants are not inputs.

    Raises:
        ModelRefused: DP301, the result is not a model, or has other inputs; or as ``Inference.of``.
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    try:
        model = ir.from_proto(proto)
    except Exception as error:  # a tool may have written anything: the result is not the model any more
        raise ModelRefused(f"the result cannot be read: {type(error).__name__}", code="DP301") from error
    graph = model.graph
    for value in list(graph.inputs):
        name = value.name or ""
        tensor = weights.tensors.get(name)
        if tensor is None or name in weights.defaults:
            continue
        graph.inputs.remove(value)
        if value.uses() or value.is_graph_output():
            as_initializer(graph, value, tensor)
    was = {v.name for v in original.graph.inputs}
    original_weights = original.graph.initializers
    if original.ir_version < 4:
        # From IR 4 on constants are not inputs, and this model becomes one of IR 4.
        was -= set(original_weights)
        for value in [v for v in graph.inputs if v.name in original_weights]:
            graph.inputs.remove(value)
    by_name = {v.name: v for v in graph.inputs}
    if set(by_name) != was:
        raise ModelRefused("the result has other inputs", code="DP301")
    graph.inputs[:] = [by_name[v.name] for v in original.graph.inputs if v.name in by_name]
    for name in weights.defaults:
        as_initializer(graph, by_name[name], weights.tensors[name])
    _restore(model, original)
    return model


def _restore(model: ir.Model, original: ir.Model) -> None:
    model.ir_version = max(original.ir_version, 4)
    for field_name in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(model, field_name, getattr(original, field_name))
    model.graph.name, model.graph.doc_string = original.graph.name, original.graph.doc_string
    for new, old in ((model, original), (model.graph, original.graph)):
        new.metadata_props.clear()
        new.metadata_props.update(old.metadata_props)
    model.functions.clear()
    model.functions.update(original_functions(original))
    for domain, version in original.opset_imports.items():
        model.opset_imports.setdefault(domain, version)
    _restore_values(model, original)
    _name_nodes(model, original)


def original_functions(original: ir.Model) -> dict[ir.OperatorIdentifier, ir.Function]:
    """Return copies of the model's functions: an onnx-ir function can be part of one model only."""
    if not original.functions:
        return {}
    shell = ir.Model(ir.Graph([], [], nodes=[], opset_imports=dict(original.opset_imports)), ir_version=10)
    shell.functions.update(original.functions)
    return dict(ir.from_proto(ir.to_proto(shell)).functions)


def _restore_values(model: ir.Model, original: ir.Model) -> None:
    """Restore denotations, documentation and metadata of values with the same name, and infer shapes again.

    The original's types and shapes are restored for inputs, outputs, and results of operators outside ONNX's domain.
    Others are inferred: tools move reshapes, but keep the names of values.
    """
    known: dict[str | None, ir.Value] = {v.name: v for g in main_graphs(original) for v in _values(g) if v.name}
    ends = {*model.graph.inputs, *model.graph.outputs}
    for graph in main_graphs(model):
        for value in _values(graph):
            old = known.get(value.name)
            if old is None:
                continue
            value.doc_string = old.doc_string
            value.metadata_props.update(old.metadata_props)
            producer = value.producer()
            if value in ends or (producer is not None and producer.domain):
                value.type = old.type or value.type
                value.shape = copy_shape(old.shape) if old.shape is not None else None
            elif old.shape is not None and value.shape is not None and len(old.shape) == len(value.shape):
                value.shape = copy_shape(value.shape)
                for axis, (size, was) in enumerate(zip(value.shape, old.shape, strict=True)):
                    if size == was and old.shape.get_denotation(axis):
                        value.shape.set_denotation(axis, old.shape.get_denotation(axis))
    write_types(model, Inference.of(model))


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.outputs


def _name_nodes(model: ir.Model, original: ir.Model) -> None:
    """Restore name, documentation and metadata of nodes with the same output and operator; rename duplicate names."""
    before = Counter(n.name for n in nodes(original) if n.name)
    by_output = {v.name: n for n in nodes(original) for v in n.outputs if v.name}
    names, used_names = Names(model), set[str | None]()
    names.nodes.update(before)
    for node in nodes(model):
        old = next((by_output[v.name] for v in node.outputs if v.name in by_output), None)
        if old is not None and old.op_type == node.op_type:
            node.name = old.name
            node.doc_string = old.doc_string
            node.metadata_props.update(old.metadata_props)
        if node.name and node.name in used_names and before[node.name] < 2:
            node.name = names.node(node.name)
        used_names.add(node.name)
