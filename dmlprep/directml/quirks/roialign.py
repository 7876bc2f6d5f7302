"""RoiAlign in mode max, which has no equal form, or with coordinates that are not moved by half an element."""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.declaring import Edit, Match, NodeFacts, Quirk

QUIRK = Quirk(
    id="roialign-max",
    code="DP630",
    title="RoiAlign in mode max",
    ops=("RoiAlign",),
    outcome="wrong numbers",
    matches=lambda node: "mode max" if node.attribute("mode", "avg") == "max" else "",
)


def _matches(node: NodeFacts) -> str | Match:
    if node.since < 16:
        return "before opset 16, DirectML moves the coordinates by half an element"
    if node.attribute("coordinate_transformation_mode", "half_pixel") != "output_half_pixel":
        return ""
    return Match("output_half_pixel, and boxes might be smaller than an element", sure=False)


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Move the boxes by half an element, make them at least one element long, and move the coordinates back."""
    if facts.since < 16:
        return "the node is of opset 10 to 15: set version to auto in the opset step"
    if facts.required(1).type != "float":
        return "its boxes are not FP32"
    element = np.array(1 / facts.attribute("spatial_scale", 1.0), np.float32)
    boxes = edit.input(1)
    starts = edit.slice(boxes, {1: (0, 2)})
    sizes = edit.before("Sub", [edit.slice(boxes, {1: (2, 4)}), starts], like=starts)
    sizes = edit.before("Max", [sizes, edit.constant(element, "element")], like=starts)
    starts = edit.before("Add", [starts, edit.constant(np.array(element / 2), "half")], like=starts)
    ends = edit.before("Add", [starts, sizes], like=starts)
    edit.set_input(1, edit.before("Concat", [starts, ends], {"axis": 1}, like=boxes))
    edit.drop("coordinate_transformation_mode")
    return ""


QUIRK_BOXES = Quirk(
    id="roialign-boxes",
    code="DP671",
    title="RoiAlign that does not move coordinates by half an element",
    ops=("RoiAlign",),
    outcome="wrong numbers",
    sources=("measured on 1.24.4 and 1.30.0: tests/benchmarks/operator_versions.py",),
    matches=_matches,
    rewrite=_rewrite,
    mended_at=16,
)
