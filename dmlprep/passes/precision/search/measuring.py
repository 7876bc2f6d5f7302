"""Add nodes that measure values inside a graph, also in the bodies (subgraphs) of If, Loop and Scan.

Each value gives three numbers that are at least 0 and grow with the measured property:

- how far the value falls below zero
- how far it rises above zero
- the share of its elements that are nonzero and below the normal FP16 range

So a branch that does not run gives 0, and of the iterations of a loop the largest number counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import attribute_graphs, join_path, label
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.precision.emulation.rounding import Builder, Constants
from dmlprep.passes.precision.fp16 import FP16_NORMAL
from dmlprep.portable.arrays import Array

if TYPE_CHECKING:
    from dmlprep.graph.model.runner import Runner

NUMBERS = 3
"""How many numbers measure each value."""

_LOOPS = frozenset({"Loop", "Scan"})


class Probe:
    """Adds measurements to a model, in place.

    ``wanted``: path of a graph (empty for the main graph, ``If_3/then_branch``) -> names of its values to measure.
    ``order``: after ``run``, the places (path and name) of the measured values, in the order of the results.
    """

    def __init__(self, model: ir.Model, opset: int, wanted: Mapping[str, list[str]]) -> None:
        self._model, self._opset, self._wanted = model, opset, wanted
        self._names = Names(model)
        self._constants = Constants(model, self._names)
        self.order: list[str] = []

    def run(self) -> ir.Value:
        """Add the nodes, and return a vector of the main graph: three numbers for each value in ``order``."""
        joined, self.order = self._graph(self._model.graph, "")
        assert joined is not None
        return joined

    def _builder(self, graph: ir.Graph) -> Builder:
        return Builder(graph, self._names, self._opset, "nearest", self._constants)

    def _graph(self, graph: ir.Graph, path: str) -> tuple[ir.Value | None, list[str]]:
        """Add the nodes for a graph and its bodies; return a vector of all numbers, and the places of the values.

        ``None`` and an empty list if there is nothing to measure.
        """
        builder = self._builder(graph)
        values = {v.name: v for node in graph for v in node.outputs if v.name}
        parts: list[ir.Value] = []
        order: list[str] = []
        for name in self._wanted.get(path, ()):
            parts += _numbers(builder, values[name])
            order.append(join_path(path, name))
        for node in list(graph):
            inner = {name: f"{join_path(path, label(node))}/{name}" for name, _ in attribute_graphs(node)}
            if not inner or not any(w == p or w.startswith(f"{p}/") for w in self._wanted for p in inner.values()):
                continue
            for name, body in list(attribute_graphs(node)):
                vector, places = self._graph(body, inner[name])
                if vector is not None:
                    parts.append(self._out_of(builder, node, name, vector, NUMBERS * len(places)))
                    order += places
        if not parts:
            return None, []
        joined = builder.op("Concat", parts, axis=0) if len(parts) > 1 else builder.op("Identity", parts)
        joined.shape = ir.Shape([NUMBERS * len(order)])
        builder.place_last()
        return joined, order

    def _out_of(self, builder: Builder, node: ir.Node, attribute: str, vector: ir.Value, size: int) -> ir.Value:
        """Add an output to ``node`` that returns ``vector`` of its body; return the vector in the graph of ``node``.

        Other branches return zeros. For a Loop or Scan, the largest number of all iterations counts.
        """
        loop = node.op_type in _LOOPS
        node.resize_outputs(len(node.outputs) + 1)
        out = node.outputs[-1]
        out.name = self._names.value("measured")
        out.type, out.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([None, size] if loop else [size])
        for name, body in attribute_graphs(node):
            if name == attribute:
                body.outputs.append(vector)
            else:
                other = self._builder(body)
                nothing = other.op("Identity", [self._constants.get(np.zeros(size, np.float32))])
                nothing.shape = ir.Shape([size])
                other.place_last()
                body.outputs.append(nothing)
        if not loop:
            return out
        row = builder.op("Reshape", [self._constants.get(np.zeros(size, np.float32)), builder.ints([1, size])])
        rows = builder.op("Concat", [row, out], axis=0)  # without iterations, the row of zeros remains
        largest = builder.reduce("ReduceMax", rows, [0], keepdims=0)
        largest.shape = ir.Shape([size])
        return largest


def flat_single(builder: Builder, value: ir.Value) -> ir.Value:
    """Create nodes that flatten a value and cast it to FP32, and return the result."""
    if value.dtype != ir.DataType.FLOAT:
        value = builder.op("Cast", [value], to=ir.DataType.FLOAT.value)
    return builder.op("Reshape", [value, builder.ints([-1])])


def in_pieces(
    runner: Runner,
    feeds: Iterable[Mapping[str, Array]],
    names: list[str],
    size: int,
    probe: Callable[[list[str]], tuple[Model, str, list[str]]],
    progress: Callable[[float, int], None],
) -> Iterator[tuple[list[str], Array]]:
    """Measure ``names`` in pieces of ``size`` values, on each feed.

    Args:
        probe: for the names of a piece, returns a model that measures them, the name of its output, and the places of
            the values in that output.
        progress: called before each run with the share done and the number of values in the piece.

    Returns:
        for each piece and feed, the places of the values and the output of the model.
    """
    every = list(feeds)
    pieces = [names[i : i + size] for i in range(0, len(names), size)]
    for done, piece in enumerate(pieces):
        model, output, order = probe(piece)
        for at, feed in enumerate(every):
            progress((done * len(every) + at) / (len(pieces) * len(every)), len(piece))
            yield order, runner.run(model, feed, [output])[output]


def _numbers(builder: Builder, value: ir.Value) -> list[ir.Value]:
    flat = flat_single(builder, value)
    shape = value.shape
    fixed = shape is not None and all(isinstance(d, int) and d > 0 for d in shape)
    size = builder.op("Abs", [flat])
    under = builder.op("Less", [size, builder.number(FP16_NORMAL)])
    over = builder.op("Greater", [size, builder.number(0.0)])
    both = builder.op("And", [under, over])
    for boolean in (under, over, both):
        boolean.type = ir.TensorType(ir.DataType.BOOL)
    small = builder.op("Cast", [both], to=ir.DataType.FLOAT.value)
    if fixed:
        share = builder.op("ReduceMean", [small], keepdims=1)
    else:
        # An empty tensor has no largest element: a value that may be empty gets a zero, which the share does not count.
        zero = builder.op("Reshape", [builder.number(0.0), builder.ints([1])])
        count = builder.op("Size", [flat])
        count.type = ir.TensorType(ir.DataType.INT64)
        count = builder.op("Max", [builder.op("Cast", [count], to=ir.DataType.FLOAT.value), builder.number(1.0)])
        share = builder.op("Div", [builder.op("ReduceSum", [small], keepdims=1), count])
        flat = builder.op("Concat", [flat, zero], axis=0)
    low = builder.op("ReduceMin", [flat], keepdims=1)
    below = builder.op("Max", [builder.op("Neg", [low]), builder.number(0.0)])
    return [below, builder.op("Max", [builder.op("ReduceMax", [flat], keepdims=1), builder.number(0.0)]), share]
