"""QuantizeLinear and DequantizeLinear with a scale of shape [1] and an axis that the data does not have."""

from __future__ import annotations

from dataclasses import replace

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Match, Quirk
from dmlprep.directml.targets.facts import NodeFacts

_TYPES = {"int8", "uint8", "int32"}
"""Quantized types; of 4 bits DirectML refuses a vector whatever its axis, so that a scalar scale would not help."""


def _matches(node: NodeFacts) -> str | Match:
    """The axis is 1 where none is written, which a vector does not have; opset 10 has no axis."""
    x, scale = node.input(0), node.input(1)
    quantized = node.output() if node.op == "QuantizeLinear" else x
    if node.since < 13 or quantized is None or quantized.type not in _TYPES:
        return ""
    if x is None or x.rank is None or scale is None or scale.shape != (1,):
        return ""
    axis = int(node.attribute("axis", 1))
    if -x.rank <= axis < x.rank or x.shape == (1,) or node.attribute("block_size", 0):
        return ""
    said = f"axis {axis} and a scale of shape [1]"
    if x.rank == 1 and x.size is None:
        return Match(f"{said}, on a vector that may have more than one element", sure=False)
    return f"{said}, on data of rank {x.rank}"


def _before_21(node: NodeFacts) -> str | Match:
    """Up to ONNX Runtime 1.24 the kernel of opset 21 is right."""
    return _matches(node) if node.since < 21 else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the scale (and zero point) as a scalar; where they are computed, write axis=0."""
    x = facts.input(0)
    arrays = [v.array() if v is not None else None for v in facts.inputs[1:3]]
    given = [v for v in facts.inputs[1:3] if v is not None]
    if any(a is None for a in arrays[: len(given)]):
        if x is None or not x.rank:
            return "data of rank 0 has no axis, and its scale or zero point is computed"
        edit.set("axis", 0)
        return ""
    for index, array in enumerate(arrays, 1):
        if array is not None:
            edit.set_input(index, edit.constant(array.reshape(()), "scale" if index == 1 else "zero_point"))
    return ""


EARLY = Quirk(
    id="quantize-axis-missing",
    code="DP607",
    title="quantization along an axis that the data does not have",
    ops=("QuantizeLinear", "DequantizeLinear"),
    outcome="create fails",
    last="1.24",
    sources=(MEASURED,),
    matches=_before_21,
    rewrite=_rewrite,
)

SINCE_25 = replace(EARLY, first="1.25", last=None, matches=_matches)
