"""What onnx 1.23.2's converter gets wrong, or cannot do, on models below opset 11; mended before and after it runs."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.core.errors import ModelRefused
from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.graph.model import Model
from dmlprep.graph.model.texts import text_of
from dmlprep.graph.model.walk import label, nodes
from dmlprep.graph.rewriting.names import Names

_BROADCAST = {"Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Equal", "Greater", "Less", "Pow"}


def not_raised(
    what: str, node: ir.Node | None = None, fix: str = "export the model again with a newer opset"
) -> ModelRefused:
    """DP104."""
    return ModelRefused(what, where=f"node {label(node)!r}" if node is not None else "", code="DP104", fix=fix)


def align_broadcasts(model: Model) -> None:
    """Give the second operand, which below opset 7 is laid along ``axis`` of the first, the dimensions that follow.

    onnx's converter writes the reshaped operand's dimensions onto the operand itself, which makes the model invalid.
    ``ModelRefused`` where the rank of an operand is not known.
    """
    values, names = Knowledge.swept(model.ir), Names(model.ir)
    for node in list(nodes(model.ir)):
        if node.domain or node.op_type not in _BROADCAST or "axis" not in node.attributes:
            continue
        axis = node.attributes["axis"].as_int()
        second = node.inputs[1]
        ranks = values.rank(node.inputs[0]), values.rank(second)
        if ranks[0] is None or ranks[1] is None or second is None:
            text = f"{node.op_type} lays an operand along axis {axis}, and the rank of an operand is not known"
            raise not_raised(text, node)
        axes = range(ranks[1], ranks[0] - axis % ranks[0])
        node.attributes.pop("axis")
        if not axes:
            continue
        name = names.new(f"{label(node)}/Unsqueeze")
        aligned = ir.Node("", "Unsqueeze", [second], [ir.AttrInt64s("axes", axes)], name=name)
        aligned.outputs[0].name = names.new(f"{name}/output")
        graph = node.graph
        assert graph is not None
        graph.insert_before(node, aligned)
        node.replace_input_with(1, aligned.outputs[0])


def resizes_of_opset_10(model: Model) -> dict[str, dict[str, str]]:
    """How Upsample and Resize below opset 11 read positions, by output: position / scale, rounded down.

    onnx's converter leaves the defaults of opset 11 (half_pixel, round_prefer_floor), which are others.
    ``ModelRefused`` where a Resize grows one dimension and shrinks another, or does not say which.
    """
    values = Knowledge.swept(model.ir)
    found: dict[str, dict[str, str]] = {}
    for node in nodes(model.ir):
        if node.domain or node.op_type not in ("Upsample", "Resize") or not node.outputs[0].name:
            continue
        rounding = "floor"
        if node.op_type == "Resize" and text_of(node, "mode", "nearest") == "nearest":
            scales = values.constant(node.inputs[1])
            if scales is None or ((scales > 1).any() and (scales < 1).any()):
                text = "a nearest Resize of opset 10 rounds by its scales, which are not known or go both ways"
                raise not_raised(text, node, "export the model again with opset 11 or newer")
            # ONNX Runtime rounds up where it shrinks (upsamplebase.h, NearestMode::SIMPLE).
            rounding = "ceil" if (scales < 1).any() else "floor"
        found[node.outputs[0].name] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": rounding}
    return found
