"""Look for quirks in a model's graphs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dmlprep.quirks.catalog import code_row, quirks
from dmlprep.quirks.quirk import UNSURE, Quirk
from dmlprep.record import Code, Finding

if TYPE_CHECKING:
    from dmlprep.targets import Target
    from dmlprep.targets.facts import GraphFacts, NodeFacts

__all__ = ["Hit", "Matches", "find_quirks"]


@dataclass(frozen=True, slots=True)
class Hit:
    """A node that a quirk concerns; ``detail`` says what of it."""

    quirk: Quirk
    node: NodeFacts
    detail: str

    @property
    def code_row(self) -> Code:
        """The row of its finding code."""
        return code_row(self.quirk.code)

    def finding(self) -> Finding:
        """The hit as a finding, with the severity of its code; a warning where it may not be so."""
        row = self.code_row
        return Finding(
            code=self.quirk.code,
            severity="warning" if UNSURE in self.detail else row.severity,
            message=f"{self.detail}: {self.quirk.outcome}",
            node=self.node.path,
            facts={
                "op": self.node.key,
                "quirk": self.quirk.id,
                "confidence": self.quirk.confidence,
                "measured_on": list(self.quirk.measured_on),
                "fixed_by": "fix-quirks" if self.quirk.rewrite is not None else "",
            },
            remedy=row.remedy,
        )


class Matches:
    """What quirks say of the nodes of one graph, and of its subgraphs: each is asked once, for however many targets.

    The nodes must stay as they are meanwhile.
    """

    def __init__(self, graph: GraphFacts) -> None:
        self._nodes = [node for inner in graph.all_graphs() for node in inner.nodes]
        self._by_op: dict[str, list[NodeFacts]] = {}
        for node in self._nodes:
            self._by_op.setdefault(node.key, []).append(node)
        self._known: dict[str, list[tuple[NodeFacts, str]]] = {}

    def of(self, quirk: Quirk) -> list[tuple[NodeFacts, str]]:
        """The nodes that a quirk concerns, and what of them."""
        if quirk.id not in self._known:
            asked = [node for op in quirk.ops for node in self._by_op.get(op, ())] if quirk.ops else self._nodes
            self._known[quirk.id] = [(node, detail) for node in asked if (detail := quirk.matches(node))]
        return self._known[quirk.id]


def find_quirks(graph: GraphFacts, target: Target, matches: Matches | None = None) -> list[Hit]:
    """Every node of ``graph`` and its subgraphs that a quirk of the target's release concerns.

    Args:
        matches: of the same graph, where several targets are asked.
    """
    from dmlprep.targets.fusion import divide

    matches = Matches(graph) if matches is None else matches
    by_node: dict[int, list[Hit]] = {}
    rows = [q for q in quirks() if q.concerns(target.release)]
    for quirk in sorted(rows, key=lambda q: not q.ops):  # those for any operator come last
        for node, detail in matches.of(quirk):
            by_node.setdefault(id(node), []).append(Hit(quirk, node, detail))
    hits: list[Hit] = []
    for inner in graph.all_graphs():
        partitions: dict[int, int] | None = None
        for node in inner.nodes:
            found = by_node.get(id(node))
            if not found or target.support(node).provider != "dml":
                continue
            if partitions is None and any(hit.quirk.fused for hit in found):
                partitions = divide(inner, target).partitions
            for hit in found:
                shown = hit.quirk.fused is None or hit.quirk.fused(node, partitions or {})
                if shown:
                    hits.append(replace(hit, detail=hit.detail + (shown if isinstance(shown, str) else "")))
    return hits
