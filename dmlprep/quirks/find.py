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

__all__ = ["Hit", "find_quirks"]


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


def find_quirks(graph: GraphFacts, target: Target) -> list[Hit]:
    """Every node of ``graph`` and its subgraphs that a quirk of the target's release concerns."""
    from dmlprep.targets.fusion import divide

    rows = [q for q in quirks() if q.concerns(target.release)]
    by_op: dict[str, list[Quirk]] = {}
    for quirk in rows:
        for op in quirk.ops:
            by_op.setdefault(op, []).append(quirk)
    for_any = [q for q in rows if not q.ops]
    hits: list[Hit] = []
    for inner in graph.all_graphs():
        partitions: dict[int, int] | None = None
        for node in inner.nodes:
            found = [
                Hit(quirk, node, detail)
                for quirk in (*by_op.get(node.key, ()), *for_any)
                if (detail := quirk.matches(node))
            ]
            if not found or target.support(node).provider != "dml":
                continue
            if partitions is None and any(hit.quirk.fused for hit in found):
                partitions = divide(inner, target).partitions
            for hit in found:
                shown = hit.quirk.fused is None or hit.quirk.fused(node, partitions or {})
                if shown:
                    hits.append(replace(hit, detail=hit.detail + (shown if isinstance(shown, str) else "")))
    return hits
