"""Remove unused nodes and initializers, and keep unused initializers for apps.

Apps read some initializers directly from the file, such as a face swapper's embedding map.
"""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.model.walk import attribute_graphs, main_graphs
from dmlprep.graph.rewriting.names import Names


def empty_bodies(node: ir.Node) -> None:
    """Remove the nodes and outputs of all bodies of a node that will be removed.

    They would still count as readers of outer values.
    """
    for _, body in attribute_graphs(node):
        for inner in body:
            empty_bodies(inner)
        body.outputs.clear()
        body.remove(list(body), safe=True)


def remove_dead(model: ir.Model) -> int:
    """Remove unused nodes and initializers (no node has side effects); return the number of removed nodes.

    Nodes in bodies of removed nodes might not count. Functions, and initializers that are also inputs, stay.
    """
    removed = 0
    # Outer graphs last: a value that only a dead body reads is dead then.
    for graph in reversed(list(main_graphs(model))):
        dead: set[ir.Node] = set()
        for node in reversed(list(graph)):
            if all(not v.is_graph_output() and all(user in dead for user, _ in v.uses()) for v in node.outputs):
                empty_bodies(node)
                dead.add(node)
        graph.remove(dead, safe=True)  # together: each call reads all outputs of the graph
        removed += len(dead)
    for graph in main_graphs(model):
        inputs = set(graph.inputs)
        for name, value in list(graph.initializers.items()):
            if not value.uses() and not value.is_graph_output() and value not in inputs:
                del graph.initializers[name]
    return removed


def take_unread(model: ir.Model) -> list[ir.Value]:
    """Remove unused initializers from the main graph and return them, in their order; ``put_unread`` restores them.

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
    """Add initializers from ``take_unread`` to the main graph again; rename values that have one of their names now."""
    names = Names(model)
    wanted = {v.name for v in values}
    for value in [v for node in model.graph.all_nodes() for v in node.outputs] + [*model.graph.initializers.values()]:
        if value.name in wanted:
            value.name = names.value(value.name or "")
    for value in values:
        model.graph.initializers.add(value)
        if model.ir_version < 4:
            model.graph.inputs.append(value)
