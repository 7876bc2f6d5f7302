"""Look for quirks in a model's graphs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dmlprep.directml.quirks.catalog import code_row, quirks
from dmlprep.directml.quirks.quirk import Match, Quirk
from dmlprep.record import Code, Finding

if TYPE_CHECKING:
    from dmlprep.directml.targets import Target
    from dmlprep.directml.targets.facts import GraphFacts, NodeFacts
    from dmlprep.directml.targets.fusion import Divisions


@dataclass(frozen=True, slots=True)
class Hit:
    """A node that a quirk concerns.

    Attributes:
        detail: the reason, in one clause.
        sure: false where the reason depends on a value that is not known.
    """

    quirk: Quirk
    node: NodeFacts
    detail: str
    sure: bool = True

    @property
    def code_row(self) -> Code:
        """The row of its finding code."""
        return code_row(self.quirk.code)

    def finding(self) -> Finding:
        """The hit as a finding, with the severity of its code; a warning where it may not be so."""
        row = self.code_row
        return Finding(
            code=self.quirk.code,
            severity=row.severity if self.sure else "warning",
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
        self._known: dict[str, list[tuple[NodeFacts, Match]]] = {}

    def of(self, quirk: Quirk) -> list[tuple[NodeFacts, Match]]:
        """The nodes that a quirk concerns, and what of them."""
        if quirk.key not in self._known:
            asked = [node for op in quirk.ops for node in self._by_op.get(op, ())] if quirk.ops else self._nodes
            answers = ((node, quirk.matches(node)) for node in asked)
            self._known[quirk.key] = [
                (node, answer if isinstance(answer, Match) else Match(answer)) for node, answer in answers if answer
            ]
        return self._known[quirk.key]


def find_quirks(
    graph: GraphFacts, target: Target, matches: Matches | None = None, divisions: Divisions | None = None
) -> list[Hit]:
    """Every node of ``graph`` and its subgraphs that a quirk of the target's release concerns.

    Args:
        matches: of the same graph, where several targets are asked.
        divisions: of the same graph and kernels, where others need them too.
    """
    from dmlprep.directml.targets.fusion import Divisions

    matches = Matches(graph) if matches is None else matches
    divisions = Divisions(target) if divisions is None else divisions
    by_node: dict[int, list[Hit]] = {}
    for quirk in concerned(target):
        for node, match in matches.of(quirk):
            by_node.setdefault(id(node), []).append(Hit(quirk, node, match.text, match.sure))
    hits: list[Hit] = []
    for inner in graph.all_graphs():
        found = [
            hit
            for node in inner.nodes
            if (of_node := by_node.get(id(node))) and target.support(node).provider == "dml"
            for hit in of_node
        ]
        hits += _shown(found, inner, divisions)
    return hits


def concerned(target: Target) -> list[Quirk]:
    """The quirks of the target's release; those for any operator come last."""
    return sorted((q for q in quirks() if q.concerns(target.release)), key=lambda q: not q.ops)


def _shown(hits: list[Hit], graph: GraphFacts, divisions: Divisions) -> list[Hit]:
    """Of the hits in one graph, those that show; a quirk that shows in fused graphs only is asked for all at once."""
    by_quirk: dict[str, list[Hit]] = {}
    for hit in hits:
        if hit.quirk.fused is not None:
            by_quirk.setdefault(hit.quirk.key, []).append(hit)
    answers: dict[tuple[str, int], bool | Match] = {}
    for name, of_quirk in by_quirk.items():
        assert of_quirk[0].quirk.fused is not None
        shown = of_quirk[0].quirk.fused([hit.node for hit in of_quirk], divisions.of(graph).partitions)
        answers.update({(name, id(hit.node)): answer for hit, answer in zip(of_quirk, shown, strict=True)})
    found = []
    for hit in hits:
        answer = answers.get((hit.quirk.key, id(hit.node)), True)
        if isinstance(answer, Match):
            hit = replace(hit, detail=hit.detail + answer.text, sure=hit.sure and answer.sure)
        if answer:
            found.append(hit)
    return found
