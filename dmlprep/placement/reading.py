"""From a model to the facts that the rules read: functions inlined, types and shapes inferred, weights untouched."""

from __future__ import annotations

from functools import partial

import onnx_ir as ir

from dmlprep.analysis.knowledge import Knowledge
from dmlprep.analysis.shapes import Inference
from dmlprep.errors import ModelRefused
from dmlprep.model import Model, freeze, thaw
from dmlprep.placement.expand import expand, expand_local
from dmlprep.targets.building import build, set_type
from dmlprep.targets.facts import GraphFacts, NodeFacts
from dmlprep.targets.kernels import Tables
from dmlprep.targets.support import node_support

__all__ = ["read_facts"]

_ROUNDS = 16  # bodies of ONNX's operators hold others that have a body, a few deep


def read_facts(model: Model, tables: Tables | None = None) -> GraphFacts:
    """The graphs of a model as ONNX Runtime places them.

    Args:
        tables: of the target: function operators for which no provider has a kernel are inlined. Without it only
            model-local functions are.
    """
    origins: dict[str, str] = {}
    read, frozen = model.ir, freeze(model.ir, attributes=False)
    if read.functions:
        expand_local(frozen.proto, origins)
        read = thaw(frozen)
    for _ in range(_ROUNDS):
        graph = build(read, Knowledge.swept(read, frozen), origins)
        _infer_contrib(read, graph)
        if tables is None or not expand(frozen.proto, graph, partial(_inlined, tables), origins):
            return graph
        read = thaw(frozen)
    return graph


def _infer_contrib(model: ir.Model, graph: GraphFacts) -> None:
    """Types and shapes behind com.microsoft operators, where onnx's inference of the whole graph stops.

    The node-by-node inference goes on through them. A model without such operators costs one look at each node.
    """
    nodes = [node for inner in graph.all_graphs() for node in inner.nodes]
    stops = (
        (n.domain == "com.microsoft" or n.since == 1) and any(v is not None and v.shape is None for v in n.outputs)
        for n in nodes
    )
    if not any(stops):
        return
    try:
        known = Inference.of(model)
    except ModelRefused:  # shapes that contradict each other: the checker's finding says so
        return
    for node in nodes:
        for output, facts in zip(node.ir.outputs, node.outputs, strict=True):
            proto = known.types.get(output)
            if facts is not None and proto is not None and not facts.static:
                set_type(facts, proto)


def _inlined(tables: Tables, node: NodeFacts) -> bool:
    return node_support(tables, node).inlined
