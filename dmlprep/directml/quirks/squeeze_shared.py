"""Squeeze or Unsqueeze whose data and axes are one tensor."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk


def _matches(node: NodeFacts) -> str:
    data = node.input(0)
    return f"data and axes are both {data.name}" if data is not None and data is node.input(1) else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Give the axes a separate initializer."""
    array = facts.array(1)
    if array is None:
        return "its axes are not constant"
    edit.set_input(1, edit.constant(array, "axes"))
    return ""


QUIRK = Quirk(
    id="squeeze-shared",
    code="DP614",
    title="Squeeze or Unsqueeze whose data and axes are one tensor",
    severity="note",
    ops=("Squeeze", "Unsqueeze"),
    outcome="create fails",
    matches=_matches,
    rewrite=_rewrite,
)
