"""From a model to the facts that the rules read: functions inlined, types and shapes inferred, weights untouched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import onnx
import onnx_ir as ir

from dmlprep.directml.placement.expand import expand, expand_local
from dmlprep.directml.targets.building import build, infer_contrib
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts
from dmlprep.directml.targets.kernels import Tables
from dmlprep.directml.targets.support import is_function, node_support
from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.model import Model, freeze, thaw
from dmlprep.graph.model.budget import Budget
from dmlprep.graph.model.frozen import Frozen

_ROUNDS = 16  # bodies of ONNX's operators hold others that have a body, a few deep


class FactsReader:
    """Reads the graphs of one model for several targets, which share what they do not inline differently.

    A reading costs an inference of types and shapes; targets that inline the same nodes, mostly none, place the same
    facts. The model must stay as it is meanwhile.

    Args:
        frozen: the same model, where it was frozen already.
    """

    def __init__(self, model: Model, frozen: Frozen | None = None) -> None:
        origins: dict[str, str] = {}
        # What local functions are expanded in is changed.
        plain = frozen is not None and frozen.complete and not model.ir.functions
        read = model.ir
        first = frozen if frozen is not None and plain else freeze(model.ir, attributes=False)
        if read.functions:
            expand_local(first.proto, origins)
            read = thaw(first)
        self._plain = _Reading(_built(read, first, origins), first, origins, model.budget)

    def facts(self, tables: Tables | None = None) -> GraphFacts:
        """``read_facts`` for one target's tables; not to be changed."""
        reading = self._plain
        if tables is None:
            return reading.graph
        for _ in range(_ROUNDS):
            further = reading.inlining(partial(_inlined, tables))
            if further is None:
                break
            reading = further
        return reading.graph


class _Reading:
    """The facts of one model, and of what it becomes where some of its nodes are inlined."""

    def __init__(self, graph: GraphFacts, frozen: Frozen, origins: dict[str, str], budget: Budget) -> None:
        self.graph = graph
        self._budget = budget
        self._frozen = frozen
        self._origins = origins
        self._known: dict[frozenset[int], _Reading | None] = {}

    def inlining(self, wanted: Callable[[NodeFacts], bool]) -> _Reading | None:
        """With the nodes that are ``wanted`` inlined; ``None`` where that changes nothing."""
        nodes = (node for inner in self.graph.all_graphs() for node in inner.nodes)
        chosen = frozenset(id(node) for node in nodes if wanted(node))
        if not chosen:
            return None
        if chosen not in self._known:
            self._known[chosen] = self._made(chosen)
        return self._known[chosen]

    def _made(self, chosen: frozenset[int]) -> _Reading | None:
        proto = onnx.ModelProto()
        proto.CopyFrom(self._frozen.proto)
        frozen, origins = Frozen(proto, self._frozen.tensors), dict(self._origins)
        budget = self._budget.fork()  # what is only read does not count against what is made
        if not expand(proto, self.graph, lambda node: id(node) in chosen, origins, budget):
            return None
        return _Reading(_built(thaw(frozen), frozen, origins), frozen, origins, budget)


def read_facts(model: Model, tables: Tables | None = None, frozen: Frozen | None = None) -> GraphFacts:
    """The graphs of a model as ONNX Runtime places them.

    Args:
        tables: of the target: function operators for which no provider has a kernel are inlined. Without it only
            model-local functions are.
        frozen: the same model, where it was frozen already.
    """
    return FactsReader(model, frozen).facts(tables)


def _built(model: ir.Model, frozen: Frozen, origins: dict[str, str]) -> GraphFacts:
    graph = build(model, Knowledge.swept(model, frozen), origins)
    infer_contrib(model, graph)
    return graph


def _inlined(tables: Tables, node: NodeFacts) -> bool:
    return is_function(node) and node_support(tables, node).inlined
