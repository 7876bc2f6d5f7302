"""ScatterElements with more updates than places. No equal form: ONNX does not say which update stays."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import DIRECTML_API, MEASURED, NodeFacts, Quirk
from dmlprep.directml.quirks.elements_narrow import sizes_by_axis


def _matches(node: NodeFacts) -> str:
    axis, sizes = sizes_by_axis(node) or (0, [(None, None)])
    places, updates = sizes[axis]
    more = isinstance(places, int) and isinstance(updates, int) and updates > places
    return f"{updates} updates for {places} places along axis {axis}" if more else ""


QUIRK = Quirk(
    id="scatter-more",
    code="DP637",
    title="ScatterElements with more updates than places",
    ops=("ScatterElements",),
    outcome="create fails",
    sources=(MEASURED, DIRECTML_API + "ns-directml-dml_scatter_operator_desc"),
    matches=_matches,
)
