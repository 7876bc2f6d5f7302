"""Replace calls of model-local functions by the functions' bodies, in time proportional to the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from dmlprep.graph.model.walk import attribute_graphs
from dmlprep.graph.rewriting.names import Names


class _NoNames(set[str]):
    """An object like a set of names, which contains no name: every name seems free."""

    def __contains__(self, name: object) -> bool:
        return False

    def add(self, name: str, /) -> None:
        """Do nothing: the name is not stored."""


class Inline(InlinePass):
    """onnx-ir's pass that inlines model-local functions, faster and with the same new names.

    onnx-ir searches a free name from the first number on for each node and value. With thousands of calls of one
    function this takes minutes (``_make_unique_name`` in its ``inliner.py``). In this class each search starts where
    the last one ended.
    """

    def __init__(self) -> None:
        super().__init__()
        self._of_nodes, self._of_values = Names(), Names()

    def _instantiate_call(self, node: ir.Node, call_site_id: str) -> Any:
        name_sets = self._used_node_names, self._used_value_names
        self._used_node_names, self._used_value_names = _NoNames(), _NoNames()
        try:
            inner_nodes, results = super()._instantiate_call(node, call_site_id)
        finally:
            self._used_node_names, self._used_value_names = name_sets
        if self._of_nodes.nodes is not name_sets[0]:  # of another run
            self._of_nodes, self._of_values = Names(), Names()
            self._of_nodes.nodes, self._of_values.values = name_sets
        for inner in _inside_first(inner_nodes):
            inner.name = self._of_nodes.node(inner.name or "node")
            for value in inner.outputs:
                value.name = self._of_values.value(value.name or "val")
        return inner_nodes, results


def _inside_first(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """Yield nodes and those of their subgraphs, each node after the nodes of its own subgraphs."""
    for node in nodes:
        for _, graph in attribute_graphs(node):
            yield from _inside_first(graph)
        yield node
