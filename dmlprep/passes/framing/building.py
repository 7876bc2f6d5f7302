"""Create the nodes of a frame (pre- and post-processing in the graph), each output with its type and shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike, DTypeLike

from dmlprep.graph.model.budget import Budget
from dmlprep.graph.rewriting.builder import GraphBuilder
from dmlprep.graph.rewriting.names import Names


def sizes(value: ir.Value) -> list[int]:
    """The shape of a value of a frame, in which all sizes are known."""
    assert value.shape is not None
    return [int(d) for d in value.shape]  # type: ignore[arg-type]


def dtype_of(name: str) -> ir.DataType:
    """The element type for numpy's name of it (``float32``, ``uint8``)."""
    return ir.DataType.from_numpy(np.dtype(name))


class Nodes(GraphBuilder):
    """Creates nodes and collects them in ``new_nodes``; the caller inserts them. Their names begin with ``about``."""

    graph: ir.Graph

    def __init__(self, graph: ir.Graph, names: Names, budget: Budget | None, about: str) -> None:
        super().__init__(graph, names, budget, f"frame of {about!r}")
        self._about = about
        self.new_nodes: list[ir.Node] = []

    @property
    def opset(self) -> int:
        """The opset that the model imports for ai.onnx."""
        return self.graph.opset_imports.get("", 1)

    def op(
        self,
        op: str,
        inputs: Sequence[ir.Value],
        shape: Sequence[int],
        dtype: ir.DataType | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> ir.Value:
        """Create a node with one output of the given shape, and return the output.

        Without ``dtype`` the output has the element type of the first input.
        """
        return self.ops(op, inputs, [(shape, dtype)], attributes)[0]

    def ops(
        self,
        op: str,
        inputs: Sequence[ir.Value],
        outputs: Sequence[tuple[Sequence[int], ir.DataType | None]],
        attributes: Mapping[str, object] | None = None,
    ) -> list[ir.Value]:
        """Create a node with several outputs, and return them.

        ``outputs``: shape and element type of each; ``None`` for the type of the first input.
        """
        wish = f"{self._about}_{op.lower()}"
        kinds = [ir.TensorType(dtype) if dtype is not None else inputs[0].type for _, dtype in outputs]
        shapes = [ir.Shape([int(d) for d in shape]) for shape, _ in outputs]
        values = [self.new_value(wish, kind, shape) for kind, shape in zip(kinds, shapes, strict=True)]
        self.new_nodes.append(self.new_node(op, inputs, values, f"{self._about}_{op}", attributes))
        return values

    def numbers(self, array: ArrayLike, what: str, dtype: DTypeLike = np.float32) -> ir.Value:
        """Create a constant, FP32 by default; ``what`` is a part of its name."""
        return self.constant(np.asarray(array, dtype), f"{self._about}_{what}")

    def with_number(self, op: str, value: ir.Value, number: ArrayLike, what: str) -> ir.Value:
        """Create a node ``op`` (such as Add or Max) of a value and a constant that broadcasts to it; return the output.

        The constant gets the value's element type; ``what`` is a part of its name.
        """
        assert value.dtype is not None
        return self.op(op, [value, self.numbers(number, what, value.dtype.numpy())], sizes(value))

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Cast a value to an element type, and return the result; the value itself if it has that type."""
        if value.dtype == dtype:
            return value
        return self.op("Cast", [value], sizes(value), dtype, {"to": int(dtype)})

    def transpose(self, value: ir.Value, perm: Sequence[int]) -> ir.Value:
        """Transpose a value, and return the result."""
        old = sizes(value)
        return self.op("Transpose", [value], [old[p] for p in perm], None, {"perm": list(perm)})

    def reshape(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        """Reshape a value, and return the result."""
        return self.op("Reshape", [value, self.numbers(shape, "shape", np.int64)], shape)

    def part(self, value: ir.Value, axis: int, start: int, end: int) -> ir.Value:
        """Slice elements ``start`` to ``end`` (exclusive) of one dimension; return the value itself if that is all."""
        shape = sizes(value)
        if (start, end) == (0, shape[axis]):
            return value
        shape[axis] = end - start
        bounds = [self.numbers([n], w, np.int64) for n, w in ((start, "start"), (end, "end"), (axis, "axis"))]
        return self.op("Slice", [value, *bounds], shape)

    def sum(self, value: ir.Value, axis: int) -> ir.Value:
        """Sum a value over one dimension, which stays with size 1, and return the result."""
        shape = sizes(value)
        shape[axis] = 1
        return self._reduced("ReduceSum", value, axis, shape, since=13)

    def _reduced(self, op: str, value: ir.Value, axis: int, shape: list[int], since: int) -> ir.Value:
        """Create a reduction over one dimension, and return the result of the given shape.

        From opset ``since`` on, the operator has its axes as an input.
        """
        keep = {"keepdims": int(len(shape) == len(sizes(value)))}
        if self.opset < since:
            return self.op(op, [value], shape, None, {"axes": [axis], **keep})
        return self.op(op, [value, self.numbers([axis], "axes", np.int64)], shape, None, keep)

    def levels(self, value: ir.Value) -> ir.Value:
        """Clip a value to the range 0 to 255, and return the result."""
        bounds = [self.numbers(n, w) for n, w in ((0.0, "black"), (255.0, "white"))]
        return self.op("Clip", [value, *bounds], sizes(value))

    def largest(self, value: ir.Value, axis: int) -> ir.Value:
        """Reduce one dimension to its largest number, and return the result, which lacks the dimension."""
        shape = sizes(value)
        del shape[axis]
        return self._reduced("ReduceMax", value, axis, shape, since=18)

    def top(self, value: ir.Value, count: int, axis: int = -1) -> tuple[ir.Value, ir.Value]:
        """Find the ``count`` largest numbers along a dimension: return them in descending order, and their indices.

        The numbers are FP32, the indices int64.
        """
        shape = sizes(value)
        shape[axis] = count
        wanted = self.numbers([count], "count", np.int64)
        outputs = [(shape, ir.DataType.FLOAT), (shape, ir.DataType.INT64)]
        values, indices = self.ops("TopK", [value, wanted], outputs, {"axis": axis, "largest": 1, "sorted": 1})
        return values, indices

    def alike(self, op: str, *values: ir.Value, dtype: ir.DataType | None = None) -> ir.Value:
        """Create a node whose output has the shape of its first input, and return the output."""
        return self.op(op, values, sizes(values[0]), dtype)
