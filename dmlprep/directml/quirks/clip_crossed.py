"""Clip whose constant min is above its max."""

from __future__ import annotations

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    low, high = (v.array() if v is not None else None for v in (node.input(1), node.input(2)))
    if low is None or high is None or low.size != 1 or high.size != 1:
        return ""
    return (
        f"min {low.reshape(-1)[0]} above max {high.reshape(-1)[0]}" if low.reshape(-1)[0] > high.reshape(-1)[0] else ""
    )


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write Min(Max(x, min), max): every element becomes max, as ONNX defines it."""
    data, low, high = edit.node.inputs[:3]
    old = edit.node.outputs[0]
    if data is None or low is None or high is None:
        return "a bound is missing"
    raised = edit.before("Max", [data, low], like=data)
    return edit.become(edit.before("Min", [raised, high], like=old))


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
