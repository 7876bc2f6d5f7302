"""Edit a graph around one node: add constants and nodes before it, replace its output, remove it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from dmlprep.graph.model.budget import Budget
from dmlprep.graph.model.dims import Dim
from dmlprep.graph.model.walk import label
from dmlprep.graph.rewriting.builder import GraphBuilder, as_attribute, replace_value
from dmlprep.graph.rewriting.names import Names

Attribute = int | float | str | Sequence[int] | Sequence[float]

END = int(np.iinfo(np.int64).max)
"""The end of a Slice that includes the last element."""


class Edit(GraphBuilder):
    """Edits ``graph`` around ``node``: its methods add nodes before it, and change or remove it."""

    graph: ir.Graph

    def __init__(self, graph: ir.Graph, node: ir.Node, names: Names, budget: Budget | None = None) -> None:
        super().__init__(graph, names, budget, f"node {label(node)!r}")
        self.node = node
        self._base = node.name or next((v.name for v in node.outputs if v.name), None) or label(node)

    @property
    def output(self) -> ir.Value:
        """The first output of the node."""
        return self.node.outputs[0]

    def optional(self, index: int) -> ir.Value | None:
        """The input of the node at a position; ``None`` if it is omitted."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def input(self, index: int = 0) -> ir.Value:
        """The input of the node at a position; only for one that the caller knows to exist."""
        value = self.node.inputs[index]
        assert value is not None
        return value

    def stored(self, index: int) -> ir.TensorProtocol | None:
        """The tensor of an input that is an initializer; ``None`` for others, and for the default of a graph input."""
        value = self.optional(index)
        return (
            value.const_value if value is not None and value.is_initializer() and not value.is_graph_input() else None
        )

    def value_name(self, wish: str) -> str:
        """A new unique name for a value: the node's name, followed by ``wish``."""
        return self.names.new(f"{self._base}_{wish}")

    def node_name(self, wish: str) -> str:
        """A new unique name for a node: the node's name, followed by ``wish``."""
        return self.value_name(f"{wish}_node")

    def integers(self, numbers: Iterable[int], what: str) -> ir.Value:
        """Add a constant vector of int64, and return it; ``what`` is part of its name."""
        return self.constant(np.array(list(numbers), np.int64), what)

    def before(
        self,
        op: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Attribute | ir.Attr] | None = None,
        *,
        like: ir.Value | None = None,
        shape: Sequence[int | str | None] | None = None,
        dtype: ir.DataType | None = None,
    ) -> ir.Value:
        """Add a new node right before ``self.node``, and return its one output.

        The output is a tensor of type ``dtype``, or has the type of ``like``. With neither, its type is unknown, and
        ``shape`` is ignored.
        """
        kind = ir.TensorType(dtype) if dtype is not None else like.type if like is not None else None
        # ONNX writes no shape without a type
        output = self.new_value(op.lower(), kind, ir.Shape(shape) if shape is not None and kind is not None else None)
        self.graph.insert_before(self.node, self.new_node(op, inputs, [output], op.lower(), attributes))
        return output

    def at(self, node: ir.Node) -> Edit:
        """Return an ``Edit`` around another node of the same graph, with the same names and budget."""
        return Edit(self.graph, node, self.names, self._budget)

    def twin(self) -> ir.Value:
        """Insert a copy of the node, as it is now, right before it; return its one output, a copy of the first."""
        node = self.node
        output = self.before(node.op_type, list(node.inputs), node.attributes, like=self.output)
        output.producer().domain = node.domain  # type: ignore[union-attr]
        return output

    def unsqueeze(self, value: ir.Value, axis: int, opset: int) -> ir.Value:
        """Add an Unsqueeze, and return ``value`` with a dimension of size 1 at ``axis``."""
        return self._with_axis("Unsqueeze", value, axis, opset)

    def squeeze(self, value: ir.Value, axis: int, opset: int) -> ir.Value:
        """Add a Squeeze, and return ``value`` without the dimension of size 1 at ``axis``."""
        return self._with_axis("Squeeze", value, axis, opset)

    def _with_axis(self, op: str, value: ir.Value, axis: int, opset: int) -> ir.Value:
        if opset >= 13:
            return self.before(op, [value, self.integers([axis], "axes")], like=value)
        return self.before(op, [value], {"axes": [axis]}, like=value)

    def slice(
        self,
        data: ir.Value,
        parts: Mapping[int, tuple[int, int]],
        *,
        like: ir.Value | None = None,
        shape: Sequence[Dim] | None = None,
    ) -> ir.Value:
        """Add a Slice of ``data``, and return its output; ``like`` and ``shape`` as in ``before``.

        ``parts``: axis -> (start, end), without the element at the end.
        """
        starts = self.integers([start for start, _ in parts.values()], "starts")
        inputs = [data, starts, self.integers([end for _, end in parts.values()], "ends"), self.integers(parts, "axes")]
        return self.before("Slice", inputs, like=data if like is None else like, shape=shape)

    def single(self, value: ir.Value, kind: str) -> ir.Value:
        """Return ``value`` in FP32, after a new Cast unless ``kind``, its element type, is ``float``."""
        return value if kind == "float" else self.cast(value, ir.DataType.FLOAT)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Add a Cast, and return ``value`` in the element type ``dtype``."""
        return self.before("Cast", [value], {"to": int(dtype)}, dtype=dtype)

    def set(self, name: str, value: Attribute) -> None:
        """Set an attribute of the node."""
        self.node.attributes[name] = as_attribute(name, value)

    def drop(self, *names: str) -> None:
        """Remove attributes of the node, if it has them."""
        for name in names:
            self.node.attributes.pop(name, None)

    def set_input(self, index: int, value: ir.Value | None) -> None:
        """Set the input of the node at a position; if the node has fewer inputs, the new ones before it are omitted."""
        if index >= len(self.node.inputs):
            self.node.resize_inputs(index + 1)
        self.node.replace_input_with(index, value)

    def shorten(self) -> None:
        """Remove omitted inputs at the end of the node's inputs."""
        while self.node.inputs[-1] is None:
            self.node.resize_inputs(len(self.node.inputs) - 1)

    def forget(self, values: Iterable[ir.Value | None]) -> None:
        """Delete the initializers among ``values`` that no node reads; inputs and outputs of the graph stay."""
        for value in values:
            if value is None or not isinstance(value.graph, ir.Graph) or not value.is_initializer():
                continue
            if not (value.uses() or value.is_graph_input() or value.is_graph_output()):
                value.graph.initializers.pop(value.name or "")

    def replace_output(self, new: ir.Value, index: int = 0) -> None:
        """Replace an output of the node by ``new`` for all readers, and give ``new`` its name."""
        replace_value(self.node.outputs[index], new, self.value_name("before"))

    def become(self, new: ir.Value, index: int = 0) -> str:
        """Replace an output by ``new``, and remove the node, whose other outputs must be unused.

        Return ``""``, which a successful rewrite returns.
        """
        self.replace_output(new, index)
        self.remove()
        return ""

    def correct_shape(self, value: ir.Value, shape: Sequence[int | str | None]) -> None:
        """Set the shape of ``value``, and remove the stored shapes of all values that are computed from it.

        Graph outputs among these keep their rank and the names of their dimensions; only the numbers are removed.
        """
        stack, visited = [value], {value}
        while stack:
            current = stack.pop()
            if current.shape is not None and current.is_graph_output():  # names of dimensions are the user's
                current.shape = ir.Shape([None if isinstance(size, int) else size for size in current.shape])
            else:
                current.shape = None
            new = {output for user, _ in current.uses() for output in user.outputs} - visited
            visited |= new
            stack += new
        value.shape = ir.Shape(shape)

    def remove(self) -> None:
        """Remove the node; its outputs must be unused."""
        self.graph.remove(self.node, safe=True)
