"""Pad that crops: negative pads from a constant."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import DML_OPERATORS, END, MEASURED, Edit, NodeFacts, Quirk


def _matches(node: NodeFacts) -> str:
    pads = node.integers(1)
    return f"pads {pads}" if min(pads or [0]) < 0 else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Crop by Slice, then Pad by what is left."""
    x, pads = facts.required(), facts.integers(1)
    if pads is None or x.rank is None:
        return "its pads or its rank are not known"
    axes = facts.integers(3) if facts.input(3) is not None else [*range(x.rank)]
    if axes is None:
        return "its axes are not constant"
    axes = [a + x.rank if a < 0 else a for a in axes]
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
        size = x.dims[axis]
        if isinstance(size, int) and size + min(low, 0) + min(high, 0) < 0:
            return f"axis {axis} is cropped by more elements than it has"
        parts[axis] = (max(-low, 0), high if high < 0 else END)
    cropped = edit.slice(edit.input(), parts)
    rest = [max(p, 0) for p in pads]
    if not any(rest):
        return edit.become(cropped)
    edit.set_input(0, cropped)
    edit.set_input(1, edit.integers(rest, "pads"))
    return ""


QUIRK = Quirk(
    id="pad-negative",
    code="DP623",
    title="Pad that crops",
    ops=("Pad",),
    outcome="wrong numbers",
    sources=(MEASURED, DML_OPERATORS + "Padding.cpp"),
    matches=_matches,
    rewrite=_rewrite,
)
