"""Nodes of a frame, in the order in which they are written, each with its type and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike, DTypeLike

from dmlprep.graph.model.budget import Budget
from dmlprep.graph.rewriting.builder import GraphBuilder
from dmlprep.graph.rewriting.names import Names


def sizes(value: ir.Value) -> list[int]:
    """The sizes of a value of a frame, which are all known."""
    assert value.shape is not None
    return [int(d) for d in value.shape]  # type: ignore[arg-type]


def dtype_of(name: str) -> ir.DataType:
    """The element type for numpy's name of it, as a note has it: ``float32``, ``uint8``."""
    return ir.DataType.from_numpy(np.dtype(name))


class Nodes(GraphBuilder):
    """A writer of nodes that are added to the graph together (``new_nodes``). Their names begin with ``about``."""

    graph: ir.Graph

    def __init__(self, graph: ir.Graph, names: Names, budget: Budget | None, about: str) -> None:
        super().__init__(graph, names, budget, f"frame of {about!r}")
        self._about = about
        self.new_nodes: list[ir.Node] = []

    @property
    def opset(self) -> int:
        """The opset of ONNX's own domain."""
        return self.graph.opset_imports.get("", 1)

    def op(
        self,
        op: str,
        inputs: Sequence[ir.Value],
        shape: Sequence[int],
        dtype: ir.DataType | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> ir.Value:
        """Add a node with one output. Without ``dtype`` it has the element type of the first input."""
        return self.ops(op, inputs, [(shape, dtype)], attributes)[0]

    def ops(
        self,
        op: str,
        inputs: Sequence[ir.Value],
        outputs: Sequence[tuple[Sequence[int], ir.DataType | None]],
        attributes: Mapping[str, object] | None = None,
    ) -> list[ir.Value]:
        """Add a node with several outputs: sizes and element type of each."""
        wish = f"{self._about}_{op.lower()}"
        kinds = [ir.TensorType(dtype) if dtype is not None else inputs[0].type for _, dtype in outputs]
        shapes = [ir.Shape([int(d) for d in shape]) for shape, _ in outputs]
        values = [self.new_value(wish, kind, shape) for kind, shape in zip(kinds, shapes, strict=True)]
        self.new_nodes.append(self.new_node(op, inputs, values, f"{self._about}_{op}", attributes))
        return values

    def numbers(self, array: ArrayLike, what: str, dtype: DTypeLike = np.float32) -> ir.Value:
        """Add a constant, FP32 by default."""
        return self.constant(np.asarray(array, dtype), f"{self._about}_{what}")

    def with_number(self, op: str, value: ir.Value, number: ArrayLike, what: str) -> ir.Value:
        """Add, Sub, Mul, Div, Max or Min with a constant of the value's type, which broadcasts to its shape."""
        assert value.dtype is not None
        return self.op(op, [value, self.numbers(number, what, value.dtype.numpy())], sizes(value))

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Cast the value to another element type; return it unchanged where it has that type."""
        if value.dtype == dtype:
            return value
        return self.op("Cast", [value], sizes(value), dtype, {"to": int(dtype)})

    def transpose(self, value: ir.Value, perm: Sequence[int]) -> ir.Value:
        """Reorder the dimensions."""
        old = sizes(value)
        return self.op("Transpose", [value], [old[p] for p in perm], None, {"perm": list(perm)})

    def reshape(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        """Reshape to other sizes."""
        return self.op("Reshape", [value, self.numbers(shape, "shape", np.int64)], shape)

    def part(self, value: ir.Value, axis: int, start: int, end: int) -> ir.Value:
        """Slice elements ``start`` to ``end`` of one dimension."""
        shape = sizes(value)
        if (start, end) == (0, shape[axis]):
            return value
        shape[axis] = end - start
        bounds = [self.numbers([n], w, np.int64) for n, w in ((start, "start"), (end, "end"), (axis, "axis"))]
        return self.op("Slice", [value, *bounds], shape)

    def sum(self, value: ir.Value, axis: int) -> ir.Value:
        """The sum over one dimension, which stays with size 1."""
        shape = sizes(value)
        shape[axis] = 1
        return self._reduced("ReduceSum", value, axis, shape, since=13)

    def _reduced(self, op: str, value: ir.Value, axis: int, shape: list[int], since: int) -> ir.Value:
        """Add a reduction whose axes are an input from opset ``since`` on."""
        keep = {"keepdims": int(len(shape) == len(sizes(value)))}
        if self.opset < since:
            return self.op(op, [value], shape, None, {"axes": [axis], **keep})
        return self.op(op, [value, self.numbers([axis], "axes", np.int64)], shape, None, keep)

    def levels(self, value: ir.Value) -> ir.Value:
        """Clip to 0 to 255."""
        bounds = [self.numbers(n, w) for n, w in ((0.0, "black"), (255.0, "white"))]
        return self.op("Clip", [value, *bounds], sizes(value))

    def largest(self, value: ir.Value, axis: int) -> ir.Value:
        """The largest number along a dimension, which is removed."""
        shape = sizes(value)
        del shape[axis]
        return self._reduced("ReduceMax", value, axis, shape, since=18)

    def top(self, value: ir.Value, count: int, axis: int = -1) -> tuple[ir.Value, ir.Value]:
        """The largest numbers of a dimension in descending order, and their indices."""
        shape = sizes(value)
        shape[axis] = count
        wanted = self.numbers([count], "count", np.int64)
        outputs = [(shape, ir.DataType.FLOAT), (shape, ir.DataType.INT64)]
        values, indices = self.ops("TopK", [value, wanted], outputs, {"axis": axis, "largest": 1, "sorted": 1})
        return values, indices

    def alike(self, op: str, *values: ir.Value, dtype: ir.DataType | None = None) -> ir.Value:
        """Add a node whose output has the sizes of its first input."""
        return self.op(op, values, sizes(values[0]), dtype)
