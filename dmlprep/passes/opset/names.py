"""Names that nothing in the model has yet."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.model.walk import graphs

__all__ = ["Names"]


class Names:
    """The names taken in all graphs and functions of a model."""

    def __init__(self, model: ir.Model) -> None:
        self._taken: set[str] = set()
        for _, graph in graphs(model):
            self._taken.update(v.name for v in graph.inputs if v.name)
            if isinstance(graph, ir.Graph):
                self._taken.update(graph.initializers)
            for node in graph:
                if node.name:
                    self._taken.add(node.name)
                self._taken.update(v.name for v in node.outputs if v.name)
        self._next: dict[str, int] = {}

    def new(self, base: str) -> str:
        """``base``, or ``base_1``, ``base_2`` ... where that is taken; it is taken from now on."""
        name = base
        while name in self._taken:
            self._next[base] = self._next.get(base, 0) + 1
            name = f"{base}_{self._next[base]}"
        self._taken.add(name)
        return name
