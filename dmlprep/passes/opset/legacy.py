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


def align_broadcasts(model: Model) -> None:
    """Below opset 7 the second operand is laid along ``axis`` of the first: give it the dimensions that follow.

    onnx's converter writes the reshaped operand's dimensions onto the operand itself, which makes the model invalid.

    Raises:
        ModelRefused: the rank of an operand is not known.
    """
    values, names = Knowledge.swept(model.ir), Names(model.ir)
    for node in list(nodes(model.ir)):
        if node.domain or node.op_type not in _BROADCAST or "axis" not in node.attributes:
            continue
        axis = node.attributes["axis"].as_int()
        first, second = node.inputs[0], node.inputs[1]
        ranks = values.rank(first), values.rank(second)
        if ranks[0] is None or ranks[1] is None or second is None:
            raise ModelRefused(
                f"{node.op_type} lays an operand along axis {axis}, and the rank of an operand is not known",
                where=f"node {label(node)!r}",
                code="DP104",
                fix="export the model again with a newer opset",
            )
        missing = ranks[0] - (axis % ranks[0]) - ranks[1]
        node.attributes.pop("axis")
        if missing <= 0:
            continue
        axes = [ranks[1] + i for i in range(missing)]
        aligned = ir.Node(
            "", "Unsqueeze", [second], [ir.AttrInt64s("axes", axes)], name=names.new(f"{label(node)}/Unsqueeze")
        )
        aligned.outputs[0].name = names.new(f"{aligned.name}/output")
        graph = node.graph
        assert graph is not None
        graph.insert_before(node, aligned)
        node.replace_input_with(1, aligned.outputs[0])


def resizes_of_opset_10(model: Model) -> dict[str, dict[str, str]]:
    """How Upsample and Resize below opset 11 read positions, by output: position / scale, rounded down.

    onnx's converter leaves the defaults of opset 11 (half_pixel, round_prefer_floor), which are others.

    Raises:
        ModelRefused: a Resize grows one dimension and shrinks another, or does not say which.
    """
    values = Knowledge.swept(model.ir)
    found: dict[str, dict[str, str]] = {}
    for node in nodes(model.ir):
        if node.domain or node.op_type not in ("Upsample", "Resize") or not node.outputs[0].name:
            continue
        rounding = "floor"
        mode = text_of(node, "mode", "nearest")
        if node.op_type == "Resize" and mode == "nearest":
            scales = values.constant(node.inputs[1])
            if scales is None or ((scales > 1).any() and (scales < 1).any()):
                raise ModelRefused(
                    "a nearest Resize of opset 10 rounds by its scales, which are not known or go both ways",
                    where=f"node {label(node)!r}",
                    code="DP104",
                    fix="export the model again with opset 11 or newer",
                )
            # ONNX Runtime rounds up where it shrinks (upsamplebase.h, NearestMode::SIMPLE).
            rounding = "ceil" if (scales < 1).any() else "floor"
        found[node.outputs[0].name] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": rounding}
    return found
