"""New names that no value or node of the model has."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.model.walk import graphs

__all__ = ["Names"]


class Names:
    """Names taken in any graph of a model; subgraphs share one name space with what is around them."""

    def __init__(self, model: ir.Model) -> None:
        self._values: set[str] = set()
        self._nodes: set[str] = set()
        self._counts: dict[str, int] = {}
        for _, graph in graphs(model):
            self._values.update(v.name for v in graph.inputs if v.name)
            if isinstance(graph, ir.Graph):
                self._values.update(graph.initializers)
            for node in graph:
                self._nodes.add(node.name or "")
                self._values.update(v.name for v in node.outputs if v.name)

    def value(self, wish: str) -> str:
        """A value name like ``wish``."""
        return self._free(wish, self._values)

    def node(self, wish: str) -> str:
        """A node name like ``wish``."""
        return self._free(wish, self._nodes)

    def _free(self, wish: str, taken: set[str]) -> str:
        # Counting on from the last number: thousands of names may start from the same wish.
        name, count = wish, self._counts.get(wish, 1)
        while name in taken:
            count += 1
            name = f"{wish}_{count}"
        self._counts[wish] = count
        taken.add(name)
        return name
