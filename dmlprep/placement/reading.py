"""From a model to the facts that the rules read: functions inlined, types and shapes inferred, weights untouched."""

from __future__ import annotations

from functools import partial

import onnx
from onnx import shape_inference

from dmlprep.model import Model
from dmlprep.model.checking import weightless
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
    proto = weightless(model.ir)
    known = {value.name for value in model.ir.graph.inputs}
    weights = {i.name for i in proto.graph.input if i.name not in known}
    overridable = {v.name for v in model.ir.graph.initializers.values()} & {v.name for v in model.ir.graph.inputs}
    weights |= {name for name in overridable if name and model.ir.ir_version < 4}
    origins: dict[str, str] = {}
    expand_local(proto, origins)
    for _ in range(MAX_ROUNDS):
        proto = _inferred(proto)
        graph = build(proto, weights=weights, origins=origins)
        infer_contrib(model, graph)
        if tables is None:
            return graph
        if not expand(proto, graph, partial(_inlined, tables), origins):
            return graph
    return graph


def _inlined(tables: Tables, node: NodeFacts) -> bool:
    return node_support(tables, node).inlined


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return shape_inference.infer_shapes(proto, check_type=False, strict_mode=False, data_prop=True)
    except (shape_inference.InferenceError, RuntimeError, ValueError):
        return proto  # what the file itself says of types and shapes is then all there is
