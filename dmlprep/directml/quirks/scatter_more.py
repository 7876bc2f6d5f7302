"""ScatterElements with more updates than places. No equal form: ONNX does not say which update stays."""

from __future__ import annotations

from dmlprep.directml.quirks.elements_narrow import sizes_by_axis
from dmlprep.directml.quirks.quirk import DIRECTML_API, MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    found = sizes_by_axis(node)
    if found is None:
        return ""
    axis, sizes = found
    places, updates = sizes[axis]
    if not isinstance(places, int) or not isinstance(updates, int) or updates <= places:
        return ""
    return f"{updates} updates for {places} places along axis {axis}"


QUIRK = Quirk(
    id="scatter-more",
    code="DP637",
    title="ScatterElements with more updates than places",
    ops=("ScatterElements",),
    outcome="create fails",
    sources=(MEASURED, DIRECTML_API + "ns-directml-dml_scatter_operator_desc"),
    matches=_matches,
)
