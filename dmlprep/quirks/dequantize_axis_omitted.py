"""DequantizeLinear of an int32 vector whose scale has shape [1], without axis."""

from __future__ import annotations

from dmlprep.quirks.editing import Edit
from dmlprep.quirks.quirk import MEASURED, Quirk
from dmlprep.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    x, scale = node.input(0), node.input(1)
    if x is None or scale is None or node.has("axis") or x.type != "int32" or x.rank != 1 or scale.shape != (1,):
        return ""
    return "int32 vector with a scale of shape [1] and no axis"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the scale (and zero point) as a scalar; where they are computed, write axis=0."""
    arrays = [v.array() if v is not None else None for v in facts.inputs[1:3]]
    given = [v for v in facts.inputs[1:3] if v is not None]
    if any(a is None for a in arrays[: len(given)]):
        edit.set("axis", 0)
        return ""
    for index, array in enumerate(arrays, 1):
        if array is not None:
            edit.set_input(index, edit.constant(array.reshape(()), "scale" if index == 1 else "zero_point"))
    return ""


QUIRK = Quirk(
    id="dequantize-axis-omitted",
    code="DP607",
    title="DequantizeLinear of an int32 vector without axis",
    ops=("DequantizeLinear",),
    outcome="run fails",
    sources=(MEASURED,),
    matches=_matches,
    rewrite=_rewrite,
)
