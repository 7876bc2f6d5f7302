"""Reshape with allowzero=1 and -1 in its shape fails at the first run."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import MEASURED, Edit, Match, NodeFacts, Quirk


def _matches(node: NodeFacts) -> str | Match:
    if not node.attribute("allowzero", 0):
        return ""
    sizes = node.integers(1)
    if sizes is not None:
        return f"allowzero=1 with shape {sizes}" if -1 in sizes else ""
    return Match("allowzero=1 with a shape that may contain -1", sure=False)


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Remove allowzero where the shape holds no 0: it only says what a 0 means."""
    sizes, out = facts.integers(1), facts.output()
    # A result without a size of 0 came of a shape without one: with allowzero a 0 stays 0.
    if not ((sizes is not None and 0 not in sizes) or (out is not None and out.static and out.size != 0)):
        return "its shape may contain a 0"
    edit.drop("allowzero")
    return ""


QUIRK = Quirk(
    id="reshape-allowzero",
    code="DP601",
    title="Reshape with allowzero and -1",
    ops=("Reshape",),
    outcome="run fails",
    sources=(MEASURED, "https://github.com/microsoft/onnxruntime/issues/18666"),
    matches=_matches,
    rewrite=_rewrite,
)
