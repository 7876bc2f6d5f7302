"""Pad that crops: negative pads from a constant."""

from __future__ import annotations

from dmlprep.directml.quirks.editing import END, Edit
from dmlprep.directml.quirks.quirk import MEASURED, ORT_SOURCE, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    pads = node.input(1)
    sizes = pads.integers() if pads is not None else None
    return f"pads {sizes}" if sizes is not None and any(p < 0 for p in sizes) else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Crop by Slice, then Pad by what is left."""
    x, pads_value = facts.input(0), facts.input(1)
    pads = pads_value.integers() if pads_value is not None else None
    if x is None or pads is None or x.rank is None:
        return "its pads or its rank are not known"
    axes = list(range(x.rank))
    given = facts.input(3)
    if given is not None:
        listed = given.integers()
        if listed is None:
            return "its axes are not constant"
        axes = [a + x.rank if a < 0 else a for a in listed]
    half = len(axes)
    if len(pads) != 2 * half:
        return "its pads do not fit its axes"
    mode = facts.attribute("mode", "constant")
    parts: dict[int, tuple[int, int]] = {}
    for i, axis in enumerate(axes):
        low, high = pads[i], pads[i + half]
        if min(low, high) >= 0:
            continue
        if mode != "constant" and max(low, high) > 0:
            return f"mode {mode} crops and pads one axis"
        size = x.shape[axis] if x.shape is not None else None
        if isinstance(size, int) and size + min(low, 0) + min(high, 0) < 0:
            return f"axis {axis} is cropped by more elements than it has"
        parts[axis] = (max(-low, 0), high if high < 0 else END)
    data = edit.node.inputs[0]
    assert data is not None
    cropped = edit.slice(data, parts)
    rest = [max(p, 0) for p in pads]
    if any(rest):
        edit.set_input(0, cropped)
        edit.set_input(1, edit.integers(rest, "pads"))
    else:
        edit.replace_output(cropped)
        edit.remove()
    return ""


QUIRK = Quirk(
    id="pad-negative",
    code="DP623",
    title="Pad that crops",
    ops=("Pad",),
    outcome="wrong numbers",
    sources=(
        MEASURED,
        ORT_SOURCE + "onnxruntime/core/providers/dml/DmlExecutionProvider/src/Operators/DmlOperatorPadding.cpp",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
