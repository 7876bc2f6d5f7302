"""From a model to the facts that the rules read: functions inlined, types and shapes inferred, weights untouched."""

from __future__ import annotations

from functools import partial

from dmlprep.analysis.knowledge import Knowledge
from dmlprep.model import Model
from dmlprep.placement.contrib import infer_contrib
from dmlprep.placement.expand import MAX_ROUNDS, expand, expand_local
from dmlprep.targets.building import build
from dmlprep.targets.facts import GraphFacts, NodeFacts
from dmlprep.targets.kernels import Tables
from dmlprep.targets.support import node_support

__all__ = ["read_facts"]


def read_facts(model: Model, tables: Tables | None = None) -> GraphFacts:
    """The graphs of a model as ONNX Runtime places them.

    Args:
        tables: of the target: function operators for which no provider has a kernel are inlined. Without it only
            model-local functions are.
    """
    origins: dict[str, str] = {}
    read = expand_local(model.ir, origins)
    for _ in range(MAX_ROUNDS):
        graph = build(read, Knowledge.swept(read), origins)
        infer_contrib(read, graph)
        inlined = expand(read, graph, partial(_inlined, tables), origins) if tables is not None else None
        if inlined is None:
            return graph
        read = inlined
    return graph


def _inlined(tables: Tables, node: NodeFacts) -> bool:
    return node_support(tables, node).inlined
