"""RoiAlign in mode max. No equal form is known."""

from __future__ import annotations

from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    return "mode max" if node.attribute("mode", "avg") == "max" else ""


QUIRK = Quirk(
    id="roialign-max",
    code="DP630",
    title="RoiAlign in mode max",
    ops=("RoiAlign",),
    outcome="wrong numbers",
    sources=(MEASURED,),
    matches=_matches,
)
