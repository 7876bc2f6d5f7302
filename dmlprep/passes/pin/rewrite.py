"""Write into the graph what shape inference found: sizes, and the constants that shape arithmetic became."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from dmlprep.model.folding import Array
from dmlprep.model.shapes import Inference, dims_of, with_dims
from dmlprep.model.walk import GraphLike, attribute_graphs

__all__ = ["main_graphs", "put_constants", "remove_dead", "write_types"]

_SMALL_BYTES = 4096
_ROOM_BYTES = 4 << 20  # larger constants together; a share of the model is added to it
_ROOM_SHARE = 0.02


def main_graphs(model: ir.Model) -> Iterable[ir.Graph]:
    """The main graph and its subgraphs, outer before inner. Bodies of functions are shared by their calls: not here."""
    stack = [model.graph]
    while stack:
        graph = stack.pop()
        yield graph
        for node in graph:
            stack.extend(sub for _, sub in attribute_graphs(node))


class _Constants:
    """Initializers made from values that became constant; equal ones are one."""

    def __init__(self, known: Inference, room: int) -> None:
        self.known = known
        self.room = room
        self.made: dict[tuple[int, str, tuple[int, ...], bytes], ir.Value] = {}

    def may(self, value: ir.Value) -> bool:
        """Whether a known value is to stand in the model as numbers."""
        producer = value.producer()
        array = self.known.constants.get(value)
        if array is None or producer is None or producer.op_type == "Constant":
            return False
        # Where it is too large, and its node makes it from little, the node stays.
        return array.nbytes <= _SMALL_BYTES or array.nbytes <= self.room

    def get(self, value: ir.Value) -> ir.Value:
        """The initializer that holds the numbers of ``value``, in the graph that made it."""
        producer = value.producer()
        array = self.known.constants[value]
        assert producer is not None
        graph = producer.graph
        assert isinstance(graph, ir.Graph)
        key = (id(graph), array.dtype.str, array.shape, array.tobytes())
        if key not in self.made:
            if array.nbytes > _SMALL_BYTES:
                self.room -= array.nbytes
            made = _initializer(value.name or "", array)
            graph.register_initializer(made)
            self.made[key] = made
            self.known.set_constant(made, array)
        return self.made[key]


def _initializer(name: str, array: Array) -> ir.Value:
    tensor = ir.Tensor(np.array(array), name=name)
    return ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)


def put_constants(model: ir.Model, known: Inference, nbytes: int) -> None:
    """Let nodes read the numbers of what became constant, instead of the nodes that computed them.

    Args:
        nbytes: of the model's tensors: large constants may add a fiftieth to it.
    """
    constants = _Constants(known, _ROOM_BYTES + int(nbytes * _ROOM_SHARE))
    for graph in main_graphs(model):
        for value in list(graph.outputs):
            producer = value.producer()
            if value in known.constants and producer is not None and producer.op_type != "Constant":
                _constant_output(graph, value, known)
    pending = [node for graph in main_graphs(model) for node in graph if not _constant_node(node, known)]
    kept: set[ir.Node] = set(pending)
    while pending:
        node = pending.pop()
        for index, read in enumerate(node.inputs):
            if read is None or read not in known.constants:
                continue
            producer = read.producer()
            if constants.may(read):
                node.replace_input_with(index, constants.get(read))
            elif producer is not None and producer not in kept:
                kept.add(producer)
                pending.append(producer)


def _constant_node(node: ir.Node, known: Inference) -> bool:
    return bool(node.outputs) and all(v in known.constants for v in node.outputs)


def _constant_output(graph: ir.Graph, value: ir.Value, known: Inference) -> None:
    """An output that is constant needs a node that makes it."""
    producer = value.producer()
    if producer is None or producer.graph is not graph:
        return
    array = known.constants[value]
    tensor = ir.Tensor(np.array(array), name=value.name)
    node = ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], num_outputs=1, name=producer.name)
    made = node.outputs[0]
    made.name = value.name
    made.type, made.shape = value.type, value.shape
    known.set_constant(made, array)
    graph.insert_before(producer, node)
    value.replace_all_uses_with(made, replace_graph_outputs=True)


def remove_dead(model: ir.Model) -> int:
    """Remove nodes that nothing reads, and initializers that nothing reads; ONNX nodes have no side effects.

    Returns:
        how many nodes went.
    """
    removed = 0
    todo: list[GraphLike] = list(main_graphs(model))
    for graph in reversed(todo):
        for node in reversed(graph):
            if all(not v.uses() and not v.is_graph_output() for v in node.outputs):
                graph.remove(node, safe=True)
                removed += 1
    for graph in main_graphs(model):
        inputs = set(graph.inputs)
        for name, value in list(graph.initializers.items()):
            if not value.uses() and not value.is_graph_output() and value not in inputs:
                del graph.initializers[name]
    return removed


def write_types(model: ir.Model, known: Inference) -> None:
    """Write the inferred type and shape of every value; denotations stay, names of sizes that are still free too."""
    for graph in main_graphs(model):
        outputs = set(graph.outputs)
        for node in graph:
            for value in node.outputs:
                _write(value, known, value in outputs)
        if graph is not model.graph:
            for value in graph.inputs:
                _write(value, known, False)


def _write(value: ir.Value, known: Inference, is_output: bool) -> None:
    proto = known.types.get(value)
    if proto is None:
        value.shape = None
        return
    value.type = ir.serde.deserialize_type_proto_for_type(proto)
    if not proto.HasField("tensor_type"):
        value.shape = ir.serde.deserialize_type_proto_for_shape(proto)
        return
    dims = dims_of(proto)
    if dims is None:
        value.shape = None
        return
    old = value.shape
    names = [None if isinstance(d, int) else d.value for d in old] if old is not None and len(old) == len(dims) else []
    new = [
        names[i] if i < len(names) and names[i] and not isinstance(d, int) and (is_output or d is None) else d
        for i, d in enumerate(dims)
    ]
    if is_output or value not in known.assumed:
        new = [None if isinstance(d, str) and known.substitute(d) is not None else d for d in new]
    value.shape = with_dims(old, new)
