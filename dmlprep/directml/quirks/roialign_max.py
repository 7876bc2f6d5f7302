"""RoiAlign in mode max. No equal form is known."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import MEASURED, Quirk

QUIRK = Quirk(
    id="roialign-max",
    code="DP630",
    title="RoiAlign in mode max",
    ops=("RoiAlign",),
    outcome="wrong numbers",
    sources=(MEASURED,),
    matches=lambda node: "mode max" if node.attribute("mode", "avg") == "max" else "",
)
