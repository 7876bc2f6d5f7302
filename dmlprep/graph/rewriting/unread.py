"""Initializers that no node reads: some apps read them from the file, as face swappers do with an embedding map."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.rewriting.names import Names


def take_unread(model: ir.Model) -> list[ir.Value]:
    """Take the initializers of the main graph that no node reads out of it, in their order.

    Defaults that a caller may override (IR 4 and later) stay: they are inputs.
    """
    graph, own = model.graph, model.ir_version < 4
    inputs = set(graph.inputs)
    values = [v for v in graph.initializers.values() if not (v.uses() or v.is_graph_output())]
    values = [v for v in values if own or v not in inputs]
    for value in values:
        graph.initializers.pop(value.name or "")
        if value in inputs:
            graph.inputs.remove(value)
    return values


def put_unread(model: ir.Model, values: list[ir.Value]) -> None:
    """Put initializers back, last in their order; a value that got one of their names gets another."""
    names = Names(model)
    wanted = {v.name for v in values}
    for value in [v for node in model.graph.all_nodes() for v in node.outputs] + [*model.graph.initializers.values()]:
        if value.name in wanted:
            value.name = names.value(value.name or "")
    for value in values:
        model.graph.initializers.add(value)
        if model.ir_version < 4:
            model.graph.inputs.append(value)
