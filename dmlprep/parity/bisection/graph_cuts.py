"""Cuts through a graph: the values at a cut, the model up to a cut, and the model between two cuts.

A cut is the position after a node. A value is alive across a cut if it is computed before and read after the cut. Nodes
have their index in the topological order of the main graph; a node with subgraphs is one node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np
import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.graph.model.checking import infer_shapes
from dmlprep.graph.model.random_ops import RANDOM
from dmlprep.graph.model.walk import attribute_graphs
from dmlprep.graph.rewriting.builder import move_readers
from dmlprep.parity.bisection.matching import may_be_compared
from dmlprep.portable.arrays import Array
from dmlprep.process.onnx_worker.door import OnnxError


class Cuts:
    """The nodes of a main graph in order, and the values at each cut.

    Cut ``i`` is the position after node ``i``; cut -1 is the start.

    Attributes:
        nodes: the nodes, in topological order.
        spans: for each value that can be compared and is not constant: its name, the index of its node, and the index
            of its last reader. The last one is the number of nodes for a graph output.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.nodes: list[ir.Node] = list(graph)
        place = {inner: i for i, node in enumerate(self.nodes) for inner in _all_nodes(node)}
        self._constant = _constants(self.nodes)
        outputs = set(graph.outputs)
        # For each value that can be compared: its name, the index of its node, and the index of its last reader.
        self.spans: list[tuple[str, int, int]] = []
        for index, node in enumerate(self.nodes):
            for value in node.outputs:
                if not may_be_compared(value) or value in self._constant or value.name is None:
                    continue
                last = max((place[user] for user, _ in value.uses()), default=index)
                self.spans.append((value.name, index, len(self.nodes) if value in outputs else last))

    def live(self, cut: int) -> list[str]:
        """Return the names of values in ``spans`` that are computed before a cut and read after it.

        Graph outputs count as read at the end.
        """
        return [name for name, first, last in self.spans if first <= cut < last]

    def whole(self, known: Iterable[str]) -> list[int]:
        """Return the cuts from 0, in order, at which all values of ``live`` are in ``known`` (names)."""
        names = set(known)
        strange = np.zeros(len(self.nodes) + 1, np.int64)
        for name, first, last in self.spans:
            if name not in names:
                strange[first] += 1
                strange[last] -= 1
        return np.flatnonzero(np.cumsum(strange)[: len(self.nodes)] == 0).tolist()

    def is_constant(self, node: ir.Node) -> bool:
        """Return True if a node depends on constants alone, not on an input."""
        return bool(node.outputs) and node.outputs[0] in self._constant


def _all_nodes(node: ir.Node) -> Iterable[ir.Node]:
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        for _, graph in attribute_graphs(current):
            stack.extend(graph)


def read_by(node: ir.Node) -> list[ir.Value]:
    """Return every value of the outer graph that a node reads, also from within its subgraphs."""
    inner = list(_all_nodes(node))
    graphs = [graph for one in inner for _, graph in attribute_graphs(one)]
    own = {v for one in inner[1:] for v in one.outputs}
    own |= {v for graph in graphs for v in (*graph.inputs, *graph.initializers.values())}
    # A subgraph may return an outer value as its output.
    read = [*(v for one in inner for v in one.inputs), *(v for graph in graphs for v in graph.outputs)]
    return [v for v in read if v is not None and v not in own]


def _constants(nodes: list[ir.Node]) -> set[ir.Value]:
    """Return the outputs of nodes that depend on constants alone, except those of random operators."""
    constants: set[ir.Value] = set()
    for node in nodes:
        fixed = (v in constants or (v.producer() is None and v.const_value is not None) for v in read_by(node))
        if node.op_type not in RANDOM and all(fixed):
            constants.update(node.outputs)
    return constants


def _keep(model: ir.Model, wanted: list[ir.Value], stop: set[str]) -> None:
    """Remove, in place, the nodes and weights that the values ``wanted`` do not need.

    The values named in ``stop`` are inputs, so the nodes that compute them are not needed.
    """
    graph = model.graph
    needed: set[ir.Node] = set()
    read: set[str] = {v.name or "" for v in wanted}
    stack = list(wanted)
    while stack:
        value = stack.pop()
        node = value.producer()
        if value.name in stop or node is None or node in needed:
            continue
        needed.add(node)
        sources = read_by(node)
        read.update(source.name or "" for source in sources)
        stack += sources
    for node in [n for n in graph if n not in needed]:
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)
        graph.remove(node)
    for name in [n for n in graph.initializers if n not in read]:
        del graph.initializers[name]


def _expose(graph: ir.Graph, names: Iterable[str], by_copy: bool) -> dict[str, str]:
    """Replace the graph's outputs, in place, by the values ``names``; return the new outputs' names by value name.

    ``by_copy``: True to return values that have readers through an Identity.
    """
    values = {v.name: v for n in graph for v in n.outputs}
    values.update({v.name: v for v in graph.inputs})
    outputs: dict[str, str] = {}
    graph.outputs.clear()
    for number, name in enumerate(dict.fromkeys(names)):
        value = values[name]
        if value.producer() is None or (by_copy and value.uses()):
            node = ir.Node("", "Identity", [value], name=f"dmlprep_cut_node_{number}")
            node.outputs[0].name = f"dmlprep_cut_{number}"
            node.outputs[0].type = value.type
            graph.append(node)
            graph.outputs.append(node.outputs[0])
            outputs[name] = f"dmlprep_cut_{number}"
        else:
            graph.outputs.append(value)
            outputs[name] = name
    return outputs


def prefix(model: Model, names: Iterable[str], *, by_copy: bool = False) -> tuple[Model, dict[str, str]]:
    """Return a copy of the part of a model that computes the values ``names``, with only these as outputs.

    The copy shares the weights.

    Args:
        by_copy: True to return values that have readers through an Identity, under a new name.

    Returns:
        the model, and the names of its outputs by the names of the values.
    """
    part = model.copy()
    graph = part.ir.graph
    names = dict.fromkeys(names)
    wanted = [v for n in graph for v in n.outputs if v.name in names]
    graph.outputs.clear()
    _keep(part.ir, wanted, set())
    return part, _expose(graph, names, by_copy)


def _feed_in_place(old: ir.Value, array: Array) -> ir.Value:
    """Return a new value for a graph input, with the name of ``old`` and the type and shape of ``array``.

    The readers of ``old`` read the new value instead.
    """
    new = ir.Value(name=old.name, type=ir.TensorType(ir.DataType.from_numpy(array.dtype)), shape=ir.Shape(array.shape))
    if old.producer() is not None:
        old.name = f"{old.name}__before"
    move_readers(old, new)
    return new


def region(model: Model, inputs: Mapping[str, Array], outputs: Iterable[str]) -> Model:
    """Return a copy of the part of a model that computes ``outputs`` from ``inputs``.

    Args:
        inputs: arrays, which give types and sizes, by the names of the values that become graph inputs; those that the
            part does not need are left out.
        outputs: names of the values that become graph outputs.
    """
    part = model.copy()
    graph = part.ir.graph
    values = {v.name: v for n in graph for v in n.outputs}
    values.update({v.name: v for v in graph.inputs})
    wanted = [values[n] for n in outputs]
    graph.outputs.clear()
    fed: dict[str, ir.Value] = {}
    for name, array in inputs.items():
        if (old := values.get(name)) is not None:
            fed[name] = _feed_in_place(old, array)
    graph.inputs.clear()
    _keep(part.ir, wanted, set(fed))
    used = {id(v) for n in graph for v in read_by(n)}
    graph.inputs.extend(v for v in fed.values() if id(v) in used)
    graph.outputs.extend(wanted)
    declare(part.ir, wanted)
    return part


def declare(model: ir.Model, values: Iterable[ir.Value]) -> None:
    """Set the shapes, and missing types, of graph outputs by shape inference; their old shapes are removed.

    ``values`` are these outputs. If onnx cannot infer anything, they have no shapes afterwards.
    """
    for value in values:
        value.shape = None
    try:
        inferred = {v.name: v.type.tensor_type for v in infer_shapes(model).graph.output}
    except OnnxError:
        return  # onnx infers nothing
    for value in values:
        inferred_type = inferred.get(value.name or "")
        if inferred_type is None:
            continue
        if value.type is None and inferred_type.elem_type:
            value.type = ir.TensorType(ir.DataType(inferred_type.elem_type))
        if inferred_type.HasField("shape"):
            value.shape = ir.Shape([d.dim_value if d.HasField("dim_value") else None for d in inferred_type.shape.dim])


def subset(model: Model, keep: Collection[int], values: Mapping[str, Array]) -> tuple[Model, dict[str, Array]]:
    """Return a copy of a model with only some of its nodes.

    A value that a kept node reads from a dropped node becomes a graph input. The graph outputs are the values of kept
    nodes that dropped nodes read or that were outputs before.

    Args:
        keep: indices of the nodes in the main graph to keep; Constant nodes stay if a kept node reads them.
        values: arrays by name, with one for each value that becomes an input.

    Returns:
        the model; and a copy of ``values``, which may have more names than the model has inputs.
    """
    part = model.copy()
    graph = part.ir.graph
    nodes = list(graph)
    inside = {
        id(n) for i, node in enumerate(nodes) if i in keep or node.op_type == "Constant" for n in _all_nodes(node)
    }
    drop = [n for n in nodes if id(n) not in inside]
    wanted = [v for n in nodes if id(n) in inside and n.op_type != "Constant" for v in n.outputs if v.name]
    wanted = [v for v in wanted if v.is_graph_output() or any(id(u) not in inside for u, _ in v.uses())]
    graph.outputs.clear()
    for node in drop:
        for old in node.outputs:
            if any(id(u) in inside for u, _ in old.uses()) and old.name is not None and old.name in values:
                graph.inputs.append(_feed_in_place(old, values[old.name]))
    for node in drop:
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)
    graph.remove(drop)
    graph.outputs.extend(wanted)
    clean(part.ir)
    declare(part.ir, wanted)
    return part, dict(values)


def clean(model: ir.Model, dead: Collection[str] | None = None) -> None:
    """Remove, in place, the inputs, weights and constants of a main graph that no node reads.

    Args:
        dead: names of values that had no reader from the start. If set, other nodes without readers are removed too,
            except those that compute one of these values.
    """
    graph = model.graph
    for node in reversed(list(graph)):
        unread = not any(v.uses() or v.is_graph_output() for v in node.outputs)
        lost = dead is not None and not any(v.name in dead for v in node.outputs)
        if unread and (node.op_type == "Constant" or lost):
            graph.remove(node, safe=True)
    used = {id(v) for n in graph for v in read_by(n)} | {id(v) for v in graph.outputs}
    for name in [n for n, v in graph.initializers.items() if id(v) not in used]:
        del graph.initializers[name]
    inputs = [v for v in graph.inputs if id(v) in used]
    graph.inputs.clear()
    graph.inputs.extend(inputs)
