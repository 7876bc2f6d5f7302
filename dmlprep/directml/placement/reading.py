"""Read the facts of a model for the rules: functions are inlined, types and shapes inferred, weights not read."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from dmlprep.directml.placement.expand import expand, expand_local
from dmlprep.directml.targets.building import build, infer_contrib
from dmlprep.directml.targets.facts import GraphFacts
from dmlprep.directml.targets.kernels import Tables
from dmlprep.directml.targets.support import is_function, node_support
from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.model import Model, freeze, protos, thaw
from dmlprep.graph.model.budget import Budget
from dmlprep.graph.model.frozen import Frozen

_ROUNDS = 16  # bodies of ONNX's operators contain operators with bodies, a few levels deep


class FactsReader:
    """Reads the facts of one model for several targets.

    Targets that inline the same nodes (usually none) get the same object, which saves an inference of types and
    shapes. The model must not change while the reader is used.
    """

    def __init__(self, model: Model, frozen: Frozen | None = None) -> None:
        origins: dict[str, str] = {}
        # The expansion of local functions changes the model.
        plain = frozen is not None and not model.ir.functions
        read = model.ir
        first = frozen.completed() if frozen is not None and plain else freeze(model.ir, attributes=False)
        if read.functions:
            expand_local(first.proto, origins)
            read = thaw(first)
        self._plain = _Reading(_built(read, first, origins), first, origins, model.budget)

    def facts(self, tables: Tables | None = None) -> GraphFacts:
        """Return the same as ``read_facts`` for one target's tables. Targets share the result: do not change it.

        Raises:
            ModelRefused, ToolFailed: as ``read_facts``.
        """
        reading = self._plain
        for _ in range(_ROUNDS):
            further = reading.inlining(tables) if tables is not None else None
            if further is None:
                break
            reading = further
        return reading.graph


@dataclass(eq=False)
class _Reading:
    """The facts of one model, and of its forms with some nodes inlined."""

    graph: GraphFacts
    frozen: Frozen
    origins: dict[str, str]
    budget: Budget
    known: dict[frozenset[int], _Reading | None] = field(default_factory=dict)

    def inlining(self, tables: Tables) -> _Reading | None:
        """The facts after one round of inlining the nodes that ONNX Runtime inlines; ``None`` if there are none."""
        inlined = (n for n in self.graph.all_nodes() if is_function(n) and node_support(tables, n).inlined)
        chosen = frozenset(map(id, inlined))
        if chosen and chosen not in self.known:
            self.known[chosen] = self._without(chosen)
        return self.known.get(chosen)

    def _without(self, chosen: frozenset[int]) -> _Reading | None:
        proto = protos.copy(self.frozen.proto)
        frozen, origins = Frozen(proto, self.frozen.tensors), dict(self.origins)
        budget = self.budget.fork()  # nodes that are only read do not count as new nodes
        if not expand(proto, self.graph, lambda node: id(node) in chosen, origins, budget):
            return None
        return _Reading(_built(thaw(frozen), frozen, origins), frozen, origins, budget)


def read_facts(model: Model, tables: Tables | None = None, frozen: Frozen | None = None) -> GraphFacts:
    """Return the main graph of a model, with its subgraphs, as ONNX Runtime places them; ``model`` is not changed.

    Args:
        tables: tables of the target: function operators for which no provider has a kernel are inlined. Without tables,
            only model-local functions are inlined.
        frozen: the frozen form of ``model``, if there is one; it saves time.

    Raises:
        ModelRefused: DP014, with the inlined nodes the model exceeds its budget.
        ToolFailed: onnx crashes on the model, or needs more than its limits.
    """
    return FactsReader(model, frozen).facts(tables)


def _built(model: ir.Model, frozen: Frozen, origins: dict[str, str]) -> GraphFacts:
    graph = build(model, Knowledge.swept(model, frozen), origins)
    infer_contrib(model, graph)
    return graph
