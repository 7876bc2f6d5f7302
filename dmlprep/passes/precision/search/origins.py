"""Find the nodes where an error starts: their operands are right, and their results are not."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from dmlprep.graph.analysis.operators import MOVES
from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import attribute_graphs, join_path, label
from dmlprep.passes.precision.search.contribution import Growth

_JUMP = 8.0
"""An error starts at a node if it is more than this many times the operands' error; rounding alone adds only a part."""

_DRIFT = 2.0**-9
"""Relative error that the rounding of a node may cause, which is ignored: 4 steps of FP16."""


def origins(model: Model, growth: Mapping[str, Growth], tolerance: float) -> list[str]:
    """Return the labels of the nodes of the main graph where an error starts.

    The first node with an error on each way through the graph counts. A later node counts if its error is at least 8
    times as large: then it has another cause. For example, the error of a mean near zero is large but harmless.
    Nodes with bodies are excluded: a search by blocks finds where an error starts in them.

    Args:
        growth: the result of ``contribution.error_growth``.
        tolerance: bound of an output's error. Errors up to a quarter of it, or up to ``_DRIFT``, are ignored.
    """
    floor = max(_DRIFT, tolerance / 4)
    spoiled: dict[ir.Value, float] = {}
    starts: list[str] = []
    for node in model.ir.graph:
        name = label(node)
        behind = max((spoiled.get(value, 0.0) for value in reads(node)), default=0.0)
        one = growth.get(name)
        if one is not None and one.result > floor and one.result > _JUMP * max(one.result - one.grown, behind):
            starts += [] if next(attribute_graphs(node), None) else [name]
            behind = one.result
        if behind:
            spoiled.update(dict.fromkeys(node.outputs, behind))
    return starts


def reads(node: ir.Node) -> list[ir.Value]:
    """The values that a node and the nodes in its subgraphs read."""
    values = [v for v in node.inputs if v is not None]
    stack = [graph for _, graph in attribute_graphs(node)]
    while stack:
        for inner in stack.pop():
            values += [v for v in inner.inputs if v is not None]
            stack += [graph for _, graph in attribute_graphs(inner)]
    return values


def around(model: Model, name: str, hops: int) -> list[str]:
    """Return the places of node ``name`` of the main graph and of the nodes that compute its operands.

    The search goes back ``hops`` nodes; nodes that only move values are included, but do not count. A node with
    subgraphs is represented by all nodes in them, except constants.
    """
    start = next(n for n in model.ir.graph if label(n) == name)
    labels: dict[str, None] = {}
    level, visited = [start], {start}
    for _ in range(hops + 1):
        above: list[ir.Node] = []
        while level:
            node = level.pop()
            labels |= dict.fromkeys(places(node))
            for value in node.inputs:
                producer = value.producer() if value is not None else None
                if producer is None or producer in visited or producer.op_type == "Constant":
                    continue
                visited.add(producer)
                (level if producer.op_type in MOVES and node is not start else above).append(producer)
        level = above
    return list(labels)


def places(node: ir.Node) -> list[str]:
    """Return the paths of a node, or of the nodes in its bodies without bodies of their own."""
    paths: list[str] = []
    stack = [("", node)]
    while stack:
        path, one = stack.pop(0)
        bodies = list(attribute_graphs(one))
        if not bodies:
            paths.append(join_path(path, label(one)))
        for name, graph in bodies:
            stack += [
                (join_path(path, f"{label(one)}/{name}"), inner) for inner in graph if inner.op_type != "Constant"
            ]
    return paths
