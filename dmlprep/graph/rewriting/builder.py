"""Write nodes and constants into a graph, and replace values by new ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from dmlprep.graph.model.budget import Budget
from dmlprep.graph.rewriting.names import Names
from dmlprep.portable.arrays import Array


class GraphBuilder:
    """Makes values, nodes and constants for one graph; its subclasses insert the nodes.

    Args:
        names: names in use in the model; new ones are added.
        budget: limit of new constants and nodes; ``None`` for no limit (for code that only changes the form of
            weights).
        where: the node that is rewritten, for errors.
    """

    def __init__(
        self, graph: ir.Graph | ir.Function, names: Names, budget: Budget | None = None, where: str = ""
    ) -> None:
        self.graph = graph
        self.names = names
        self._budget = budget
        self._where = where

    def room(self, shape: Sequence[int], itemsize: int, what: str) -> None:
        """Check that an array (``what``: a table of cosines) fits the budget before it is computed.

        Raises:
            ModelRefused: DP014, it does not fit.
        """
        if self._budget is not None:
            self._budget.require(shape, itemsize, what, self._where)

    def expect(self, nodes: int) -> None:
        """Check that so many nodes fit the budget before they are written.

        Raises:
            ModelRefused: DP014, they do not fit.
        """
        if self._budget is not None:
            self._budget.require_nodes(nodes, "the replacement of its operators", self._where)

    def value_name(self, wish: str) -> str:
        """Return a new unique name for a value, like ``wish``."""
        return self.names.value(wish)

    def node_name(self, wish: str) -> str:
        """Return a new unique name for a node, like ``wish``."""
        return self.names.node(wish)

    def new_value(self, wish: str, kind: ir.TypeProtocol | None = None, shape: ir.Shape | None = None) -> ir.Value:
        """Return a new value, which no node computes yet, with a name like ``wish`` and a copy of ``shape``."""
        return ir.Value(name=self.value_name(wish), type=kind, shape=_copied(shape))

    def new_node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        outputs: Sequence[ir.Value],
        wish: str,
        attributes: Mapping[str, object] | None = None,
    ) -> ir.Node:
        """Return a new node of the default domain, with a name like ``wish``, which is in no graph yet."""
        attrs = [as_attribute(name, value) for name, value in (attributes or {}).items()]
        return ir.Node("", op_type, inputs, attrs, outputs=outputs, name=self.node_name(wish))

    def constant(self, array: Array, wish: str) -> ir.Value:
        """Add an initializer with a copy of ``array`` to the graph, under a name like ``wish``; return its value.

        Raises:
            ModelRefused: DP014, it does not fit the budget.
        """
        self.room(array.shape, array.itemsize, "a constant")
        # ascontiguousarray would turn a scalar into a vector
        return self.initializer(ir.Tensor(np.array(array, copy=True, order="C")), wish)

    def initializer(self, tensor: ir.TensorProtocol, wish: str) -> ir.Value:
        """Add an initializer with ``tensor`` to the graph, under a name like ``wish``; return its value.

        Raises:
            ModelRefused: DP014, it does not fit the budget.
        """
        assert isinstance(self.graph, ir.Graph)  # a function has none
        if self._budget is not None:
            self._budget.spend(int(tensor.nbytes), what=f"a constant of shape {tensor.shape}", where=self._where)
        tensor.name = self.value_name(wish)
        return as_initializer(self.graph, ir.Value(name=tensor.name), tensor)


def as_attribute(name: str, value: Any) -> ir.Attr:
    """Return an attribute ``name`` with a Python value; an ``ir.Attr`` is returned as it is."""
    # 30 times as fast: onnx-ir first checks whether a value is a graph or a tensor
    if isinstance(value, int):
        return ir.AttrInt64(name, value)
    if isinstance(value, list) and value and all(isinstance(v, int) for v in value):
        return ir.AttrInt64s(name, value)
    return ir.convenience.convert_attribute(name, value)


def as_initializer(graph: ir.Graph, value: ir.Value, tensor: ir.TensorProtocol) -> ir.Value:
    """Make ``value``, which no node computes, an initializer of ``graph`` with ``tensor``; return ``value``."""
    set_type(value, tensor)
    value.const_value = tensor
    graph.register_initializer(value)
    return value


def set_type(value: ir.Value, tensor: ir.TensorProtocol) -> None:
    """Give ``value`` the type and shape of ``tensor``."""
    value.type = ir.TensorType(tensor.dtype)
    value.shape = ir.Shape(tensor.shape.numpy())


def inherit(old: ir.Value, new: ir.Value, rename: str) -> None:
    """Give ``new`` the name of ``old``, and its type, shape, documentation and metadata; rename ``old``.

    Args:
        rename: the new name of ``old``; empty where its node will be removed.
    """
    name, old.name = old.name, rename
    new.name = name
    new.type = old.type or new.type
    new.shape = _copied(old.shape) if old.shape is not None else new.shape
    new.doc_string = old.doc_string or new.doc_string
    new.metadata_props.update(old.metadata_props)


def insert_behind(value: ir.Value, nodes: ir.Node | Sequence[ir.Node]) -> None:
    """Insert nodes right after the node that computes ``value``; first in its graph where there is no such node."""
    graph, producer = value.graph, value.producer()
    assert graph is not None
    if producer is not None:
        graph.insert_after(producer, nodes)
    elif len(graph):
        graph.insert_before(graph[0], nodes)
    else:
        graph.extend([nodes] if isinstance(nodes, ir.Node) else nodes)


def move_readers(old: ir.Value, new: ir.Value | None, but: Collection[ir.Node] = ()) -> None:
    """Let all nodes that read ``old``, except the nodes ``but``, read ``new`` instead; ``None`` omits the input."""
    for reader, index in tuple(old.uses()):
        if reader not in but:
            reader.replace_input_with(index, new)


def replace_outputs(graph: ir.Graph | ir.Function, old: ir.Value, new: ir.Value) -> None:
    """Replace ``old`` by ``new`` among the outputs of ``graph``."""
    if not old.is_graph_output():  # most values are not outputs, and a graph may have thousands
        return
    outputs = graph.outputs[:]
    for _ in range(outputs.count(old)):
        index = outputs.index(old)
        outputs[index] = graph.outputs[index] = new


def replace_value(old: ir.Value, new: ir.Value, rename: str, new_nodes: Sequence[ir.Node] = ()) -> None:
    """Replace ``old`` by ``new`` everywhere: for all readers, as graph output, and in name, type and shape.

    Args:
        rename: the new name of ``old``; empty where its node will be removed.
        new_nodes: nodes that compute ``new`` from ``old``. They are inserted right after the node of ``old``.
    """
    inherit(old, new, rename)
    move_readers(old, new, but=new_nodes)
    assert old.graph is not None
    replace_outputs(old.graph, old, new)
    if new_nodes:
        insert_behind(old, new_nodes)


def remove_unread(node: ir.Node) -> None:
    """Remove a node if its outputs are unread, and then the nodes and initializers that only it read."""
    stack = [node]
    while stack:
        last = stack.pop()
        graph = last.graph
        if not isinstance(graph, ir.Graph) or any(v.uses() or v.is_graph_output() for v in last.outputs):
            continue
        inputs = [v for v in last.inputs if v is not None]
        read = [v for v in inputs if v.is_initializer()]
        stack += [n for v in inputs if (n := v.producer()) is not None]
        graph.remove(last, safe=True)
        for value in read:
            held = value.graph
            if held is not None and not value.uses() and not value.is_graph_input() and not value.is_graph_output():
                held.initializers.pop(value.name or "", None)


def _copied(shape: ir.Shape | None) -> ir.Shape | None:
    return shape.copy() if shape is not None else None
