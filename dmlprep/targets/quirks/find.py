"""Look for quirks in a model's graphs."""

from __future__ import annotations

from dataclasses import dataclass

from dmlprep.record import Finding, finding
from dmlprep.targets.facts import GraphFacts, NodeFacts
from dmlprep.targets.quirks import failing, wrong
from dmlprep.targets.quirks.gelu import fast_gelu, tanh_gelu, trapped_gelu
from dmlprep.targets.quirks.quantized import idle_clip, quantized_unary
from dmlprep.targets.quirks.table import Quirk, quirks
from dmlprep.targets.target import Target

__all__ = ["Hit", "Quirks", "find_quirks"]

UNSURE = " may hold "
"""In a detail: whether the quirk concerns the node depends on a value that is not known."""

_MATCHERS = {
    **failing.MATCHERS,
    **wrong.MATCHERS,
    "fast-gelu": fast_gelu,
    "gelu-decomposed": trapped_gelu,
    "gelu-tanh": tanh_gelu,
    "idle-clip": idle_clip,
    "quantized-unary": quantized_unary,
}


@dataclass(frozen=True, slots=True)
class Hit:
    """A node that a quirk concerns; ``detail`` says what of it."""

    quirk: Quirk
    node: NodeFacts
    detail: str

    def finding(self) -> Finding:
        """The hit as a finding, with the severity of its code; a warning where it may not be so."""
        path = f"{self.node.graph}/{self.node.label}" if self.node.graph else self.node.label
        return finding(
            self.quirk.code,
            f"{self.detail}: {self.quirk.outcome}",
            node=path,
            severity="warning" if UNSURE in self.detail else None,
            op=self.node.key,
            quirk=self.quirk.id,
            confidence=self.quirk.confidence,
            measured_on=self.quirk.measured_on,
            fixed_by="fix-quirks" if self.quirk.fix else "",
        )


@dataclass(frozen=True)
class Quirks:
    """The quirks of a model on one target."""

    hits: list[Hit]

    def findings(self) -> list[Finding]:
        """One finding a hit."""
        return [hit.finding() for hit in self.hits]


def find_quirks(graph: GraphFacts, target: Target) -> Quirks:
    """Every node of ``graph`` and its subgraphs that a quirk of the target's release concerns."""
    rows = [q for q in quirks() if q.id in _MATCHERS and q.concerns(target.release)]
    by_op: dict[str, list[Quirk]] = {}
    for quirk in rows:
        for op in quirk.ops:
            by_op.setdefault(op, []).append(quirk)
    for_any = [q for q in rows if not q.ops]
    hits: list[Hit] = []
    for inner in graph.all_graphs():
        for node in inner.nodes:
            found = [
                Hit(quirk, node, detail)
                for quirk in (*by_op.get(node.key, ()), *for_any)
                if (detail := _MATCHERS[quirk.id](node))
            ]
            if found and target.support(node).provider == "dml":
                hits += found
    return Quirks(hits)
