"""Find quirks in a model's graphs."""

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
    """A node with a quirk; ``detail`` and ``sure`` are the reason, and whether it is certain, as in ``Match``."""

    quirk: Quirk
    node: NodeFacts
    detail: str
    sure: bool = True

    @property
    def code_row(self) -> Code:
        """Title, severity and remedy of its finding code."""
        return code_row(self.quirk.code)

    def finding(self) -> Finding:
        """The hit as a finding, with the severity of its code; a warning if it is not sure."""
        row = self.code_row
        return Finding(
            code=self.quirk.code,
            severity=row.severity if self.sure else "warning",
            message=f"{self.detail}: {self.quirk.effect}",
            node=self.node.path,
            facts={
                "op": self.node.key,
                "quirk": self.quirk.id,
                "confidence": self.quirk.confidence,
                "measured_on": list(self.quirk.measured_on),
                "fixed_by": "fix-quirks" if self.quirk.rewrite is not None else "",
            },
            remedy=row.remedy,
            source=self.node.source,
        )


class Matches:
    """A cache of the nodes that match each quirk, in one graph and its subgraphs, for any number of targets.

    The nodes must not change while this object is used.
    """

    def __init__(self, graph: GraphFacts) -> None:
        self._nodes = list(graph.all_nodes())
        self._by_op: dict[str, list[NodeFacts]] = {}
        for node in self._nodes:
            self._by_op.setdefault(node.key, []).append(node)
        self._known: dict[str, list[tuple[NodeFacts, Match]]] = {}

    def of(self, quirk: Quirk) -> list[tuple[NodeFacts, Match]]:
        """The nodes that match a quirk, on any device, and the match of each."""
        if quirk.key not in self._known:
            asked = [node for op in quirk.ops for node in self._by_op.get(op, ())] if quirk.ops else self._nodes
            answers = [(node, answer) for node in asked if (answer := quirk.matches(node))]
            self._known[quirk.key] = [(node, Match(a) if isinstance(a, str) else a) for node, a in answers]
        return self._known[quirk.key]


def find_quirks(
    graph: GraphFacts, target: Target, matches: Matches | None = None, divisions: Divisions | None = None
) -> list[Hit]:
    """Return one ``Hit`` for each quirk of the target's release on each node of ``graph`` and its subgraphs.

    Only nodes on DirectML count, and quirks of fused graphs only where they take effect. Pass ``matches`` and
    ``divisions`` if they exist, to save time.

    Raises:
        UsageError: the target's kernels are not known.
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
        nodes = [n for n in inner.nodes if id(n) in by_node and target.support(n).provider == "dml"]
        hits += _shown([hit for node in nodes for hit in by_node[id(node)]], inner, divisions)
    return hits


def concerned(target: Target) -> list[Quirk]:
    """The quirks of the target's release; those that any operator can have come last."""
    return sorted((q for q in quirks() if q.concerns(target.release)), key=lambda q: not q.ops)


def _shown(hits: list[Hit], graph: GraphFacts, divisions: Divisions) -> list[Hit]:
    """Return the hits of one graph without those that take no effect, as the quirk's ``fused`` says.

    An uncertain answer of ``fused`` makes the hit uncertain.
    """
    answers: dict[tuple[str, int], bool | Match] = {}
    for quirk in {hit.quirk.key: hit.quirk for hit in hits}.values():
        if quirk.fused is not None:
            nodes = [hit.node for hit in hits if hit.quirk.key == quirk.key]
            keys = [(quirk.key, id(node)) for node in nodes]
            answers.update(zip(keys, quirk.fused(nodes, divisions.of(graph).partitions), strict=True))
    shown = []
    for hit in hits:
        answer = answers.get((hit.quirk.key, id(hit.node)), True)
        if isinstance(answer, Match):
            hit = replace(hit, detail=hit.detail + answer.text, sure=hit.sure and answer.sure)
        if answer:
            shown.append(hit)
    return shown
