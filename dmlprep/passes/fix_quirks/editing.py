"""Edit a graph around one node: constants, nodes before it, another value in the place of its output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from dmlprep.model import Model
from dmlprep.model.walk import graphs, label

__all__ = ["Edit", "value_names"]

Attribute = int | float | str | Sequence[int] | Sequence[float]


def value_names(model: Model) -> set[str]:
    """Names of all values of all graphs: new ones must differ."""
    found: set[str] = set()
    for _, graph in graphs(model.ir):
        found.update(v.name for v in graph.inputs if v.name)
        if isinstance(graph, ir.Graph):
            found.update(graph.initializers)
        found.update(v.name for node in graph for v in node.outputs if v.name)
    return found


class Edit:
    """Edits around ``node``, which stands in ``graph``.

    Args:
        taken: names of values in use; what is made here is added to it.
    """

    def __init__(self, graph: ir.Graph, node: ir.Node, taken: set[str]) -> None:
        self.graph = graph
        self.node = node
        self.taken = taken
        self._base = node.name or next((v.name for v in node.outputs if v.name), None) or label(node)

    def name(self, what: str) -> str:
        """A name of a value that no other has."""
        wanted = f"{self._base}_{what}"
        name, count = wanted, 1
        while name in self.taken:
            count += 1
            name = f"{wanted}_{count}"
        self.taken.add(name)
        return name

    def constant(self, array: np.ndarray[Any, Any], what: str) -> ir.Value:
        """An initializer of this node's graph; ``array`` keeps its dtype and shape."""
        name = self.name(what)
        # A copy: ascontiguousarray would make a vector of a scalar.
        tensor = ir.tensor(np.array(array, copy=True, order="C"), name=name)
        return self.initializer(tensor, name)

    def initializer(self, tensor: ir.TensorProtocol, name: str) -> ir.Value:
        """An initializer of this node's graph that holds ``tensor``."""
        value = ir.Value(
            name=name, shape=ir.Shape(tensor.shape.numpy()), type=ir.TensorType(tensor.dtype), const_value=tensor
        )
        self.graph.register_initializer(value)
        return value

    def integers(self, numbers: Iterable[int], what: str) -> ir.Value:
        """A constant vector of int64."""
        return self.constant(np.array(list(numbers), np.int64), what)

    def before(
        self,
        op: str,
        inputs: Sequence[ir.Value | None],
        attributes: dict[str, Attribute] | None = None,
        *,
        like: ir.Value | None = None,
        shape: Sequence[int | str | None] | None = None,
        dtype: ir.DataType | None = None,
    ) -> ir.Value:
        """Add a node with one output before the node.

        Args:
            like: the output has this value's type, and its shape where ``shape`` is not given.
            shape: sizes of the output, where they are known.
            dtype: element type of the output in place of that of ``like``.
        """
        output = ir.Value(name=self.name(op.lower()))
        if dtype is not None:
            output.type = ir.TensorType(dtype)
        elif like is not None:
            output.type = like.type
        if shape is not None and output.type is not None:  # ONNX writes no shape without a type
            output.shape = ir.Shape(list(shape))
        new = ir.Node(
            "",
            op,
            inputs,
            [ir.convenience.convert_attribute(k, v) for k, v in (attributes or {}).items()],
            outputs=[output],
            name=self._node_name(op),
        )
        self.graph.insert_before(self.node, new)
        return output

    def twin(self) -> ir.Value:
        """A node like this one, with its inputs and attributes as they are now, before it; its first output."""
        attributes = list(self.node.attributes.values())
        output = self.before(self.node.op_type, list(self.node.inputs), like=self.node.outputs[0])
        made = output.producer()
        assert made is not None
        for attribute in attributes:
            made.attributes[attribute.name] = attribute
        return output

    def _node_name(self, op: str) -> str:
        return self.name(f"{op.lower()}_node")

    def set(self, name: str, value: Attribute) -> None:
        """Write an attribute of the node."""
        self.node.attributes[name] = ir.convenience.convert_attribute(name, value)

    def drop(self, *names: str) -> None:
        """Remove attributes of the node."""
        for name in names:
            self.node.attributes.pop(name, None)

    def set_input(self, index: int, value: ir.Value | None) -> None:
        """Set an input, with inputs left out up to it where the node has fewer."""
        if index >= len(self.node.inputs):
            self.node.resize_inputs(index + 1)
        self.node.replace_input_with(index, value)

    def replace_output(self, new: ir.Value, index: int = 0) -> None:
        """Let ``new`` stand for an output of the node everywhere, under its name."""
        old = self.node.outputs[index]
        name, shape, kind = old.name, old.shape, old.type
        old.name = self.name("before")
        new.name = name
        if kind is not None:
            new.type = kind
        if shape is not None:
            new.shape = shape
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)

    def forget_shapes(self, value: ir.Value) -> None:
        """Drop the shapes written down for ``value`` and for what is computed from it; outputs keep theirs."""
        stack, seen = [value], {id(value)}
        while stack:
            current = stack.pop()
            if not current.is_graph_output():
                current.shape = None
            for user, _ in current.uses():
                for output in user.outputs:
                    if id(output) not in seen:
                        seen.add(id(output))
                        stack.append(output)

    def remove(self) -> None:
        """Take the node out; its outputs are read by nothing any more."""
        self.graph.remove(self.node, safe=True)
