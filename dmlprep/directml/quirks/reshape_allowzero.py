"""Reshape with allowzero=1 and -1 in its shape fails at the first run."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import MEASURED, Edit, Match, NodeFacts, Quirk
from dmlprep.graph.model.dims import Dim


def _matches(node: NodeFacts) -> str | Match:
    if not node.attribute("allowzero", 0):
        return ""
    sizes = _sizes(node)
    if -1 in sizes:
        return f"allowzero=1 with shape [{', '.join('?' if s is None else str(s) for s in sizes)}]"
    return Match("allowzero=1 with a shape that might contain -1", sure=False) if None in sizes else ""


def _sizes(node: NodeFacts) -> tuple[Dim, ...]:
    shape = node.input(1)
    return (None,) if shape is None or shape.elements is None else shape.elements


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Remove allowzero if the shape contains no 0: it only defines the meaning of a 0.

    ONNX forbids a 0 next to -1 under allowzero. Data or a result with elements shows that the shape has no 0.
    """
    sizes, ends = _sizes(facts), (facts.input(0), facts.output())
    if -1 not in sizes and not any(v is not None and v.static and v.size for v in ends):
        return "its shape might contain a 0"
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
