"""Remove nodes and initializers that nothing reads."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.model.walk import attribute_graphs, main_graphs


def empty_bodies(node: ir.Node) -> None:
    """Take the bodies of a node apart that is to go: their nodes would still count as readers of outer values."""
    for _, body in attribute_graphs(node):
        for inner in body:
            empty_bodies(inner)
        body.outputs.clear()
        body.remove(list(body), safe=True)


def remove_dead(model: ir.Model) -> int:
    """Remove nodes and initializers that nothing reads (no node has side effects); return how many nodes."""
    removed = 0
    # Outer graphs last: what only a dead body reads is dead then.
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
