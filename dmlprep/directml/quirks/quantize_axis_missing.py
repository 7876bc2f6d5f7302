"""QuantizeLinear and DequantizeLinear with a scale of shape [1] and an axis that the data does not have."""

from __future__ import annotations

from dataclasses import replace

from dmlprep.directml.quirks.declaring import MEASURED, Edit, Match, NodeFacts, Quirk

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
    text = f"axis {axis} and a scale of shape [1], on"
    if x.rank == 1 and x.size is None:
        return Match(f"{text} a vector that may have more than one element", sure=False)
    return f"{text} data of rank {x.rank}"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the scale (and zero point) as a scalar; where they are computed, write axis=0."""
    arrays = [(name, v.array()) for name, v in zip(("scale", "zero_point"), facts.inputs[1:3], strict=False) if v]
    constant = [(name, array) for name, array in arrays if array is not None]
    if len(constant) < len(arrays):
        if not facts.rank(0):
            return "data of rank 0 has no axis, and its scale or zero point is computed"
        edit.set("axis", 0)
        return ""
    for index, (name, array) in enumerate(constant, 1):
        edit.set_input(index, edit.constant(array.reshape(()), name))
    return ""


EARLY = Quirk(
    id="quantize-axis-missing",
    code="DP607",
    title="quantization along an axis that the data does not have",
    ops=("QuantizeLinear", "DequantizeLinear"),
    outcome="create fails",
    last="1.24",
    sources=(MEASURED,),
    matches=lambda node: _matches(node) if node.since < 21 else "",  # up to 1.24 the kernel of opset 21 is right
    rewrite=_rewrite,
)

SINCE_25 = replace(EARLY, first="1.25", last=None, matches=_matches)
