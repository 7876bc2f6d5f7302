"""Make new names that no value or node of a model has."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.model.walk import GraphLike, graphs


class Names:
    """A registry of the names in a model, which makes new ones; all graphs of the model share it.

    A node and a value may have the same name.
    """

    def __init__(self, model: ir.Model | None = None) -> None:
        self.values: set[str] = set()
        self.nodes: set[str] = set()
        self._counts: dict[str, int] = {}
        for _, graph in graphs(model) if model is not None else ():
            self.take(graph)

    def take(self, graph: GraphLike) -> None:
        """Add the names in a graph to the registry, without those in its subgraphs."""
        self.values.update(v.name for v in graph.inputs if v.name)
        if isinstance(graph, ir.Graph):
            self.values.update(graph.initializers)
        for node in graph:
            self.nodes.add(node.name or "")
            self.values.update(v.name for v in node.outputs if v.name)

    def value(self, wish: str) -> str:
        """Return a free value name: ``wish``, or ``wish_2``, ``wish_3`` ..., and reserve it."""
        return self._free(wish, self.values)

    def node(self, wish: str) -> str:
        """Return a free node name: ``wish``, or ``wish_2``, ``wish_3`` ..., and reserve it."""
        return self._free(wish, self.nodes)

    def new(self, wish: str) -> str:
        """Return a name like ``wish`` that neither a value nor a node has, and reserve it."""
        return self._free(wish, self.values, self.nodes)

    def _free(self, wish: str, *name_sets: set[str]) -> str:
        # Continue from the last number: thousands of names may start from the same wish.
        name, count = wish, self._counts.get(wish, 1)
        while any(name in names for names in name_sets):
            count += 1
            name = f"{wish}_{count}"
        self._counts[wish] = count
        for names in name_sets:
            names.add(name)
        return name
