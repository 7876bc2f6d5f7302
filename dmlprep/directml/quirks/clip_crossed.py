"""Clip whose constant min is above its max."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk


def _matches(node: NodeFacts) -> str:
    low, high = node.array(1), node.array(2)
    if low is None or high is None or low.size != 1 or high.size != 1:
        return ""
    least, most = low.reshape(-1)[0], high.reshape(-1)[0]
    return f"min {least} above max {most}" if least > most else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write Min(Max(x, min), max): every element becomes max, as ONNX defines it."""
    raised = edit.before("Max", [edit.input(), edit.input(1)], like=edit.input())
    return edit.become(edit.before("Min", [raised, edit.input(2)], like=edit.output))


QUIRK = Quirk(
    id="clip-crossed",
    code="DP631",
    title="Clip whose min is above its max",
    ops=("Clip",),
    outcome="wrong numbers",
    sources=(MEASURED, "onnx_backend_test_series_filters.jsonc (clip_min_greater_than_max)"),
    matches=_matches,
    rewrite=_rewrite,
)
