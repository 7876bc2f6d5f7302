"""Where nodes and values are: names that hold across the bodies of If, Loop and Scan."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.model.walk import graphs, label

__all__ = ["join_path", "nodes_by_path"]


def join_path(path: str, name: str) -> str:
    """A name with the path of its graph before it: ``If_3/then_branch/Pow_1``; the bare name in the main graph."""
    return f"{path}/{name}" if path else name


def nodes_by_path(model: ir.Model) -> dict[str, ir.Node]:
    """Every node by its place. The first of two nodes of one graph that share a name has it."""
    found: dict[str, ir.Node] = {}
    for path, graph in graphs(model):
        for node in graph:
            found.setdefault(join_path(path, label(node)), node)
    return found
