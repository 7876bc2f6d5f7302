"""Pad that crops, Pad with zeros before MaxPool (ONNX Runtime fuses them), and Pad in FP16 with a value attribute."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.quirks.declaring import DML_OPERATORS, END, MEASURED, ORT_SOURCE, Edit, Match, NodeFacts, Quirk
from dmlprep.directml.quirks.patterns import only_consumer, scalar


def _matches(node: NodeFacts) -> str | Match:
    pads = node.integers(1) or []
    if min(pads, default=0) >= 0:
        return ""
    if node.attribute("mode", "constant") == "reflect" or min(pads[: len(pads) // 2], default=0) >= 0:
        return Match(f"pads {pads}, which are right on ONNX Runtime 1.24.4", sure=False)
    return f"pads {pads}"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Crop with a Slice, then add the pads that are not negative with Pad."""
    x, pads = facts.required(), facts.integers(1)
    if pads is None or x.rank is None:
        return "its pads are not constant, or its rank is unknown"
    axes = facts.integers(3) if facts.input(3) is not None else [*range(x.rank)]
    if axes is None:
        return "its axes are not constant"
    axes = [a + x.rank if a < 0 else a for a in axes]
    half = len(axes)
    if len(pads) != 2 * half:
        return "its pads do not match its axes"
    mode = facts.attribute("mode", "constant")
    parts: dict[int, tuple[int, int]] = {}
    for i, axis in enumerate(axes):
        low, high = pads[i], pads[i + half]
        if min(low, high) >= 0:
            continue
        if mode != "constant" and max(low, high) > 0:
            return f"mode {mode} crops and pads one axis"
        size = x.dims[axis]
        if isinstance(size, int) and size + min(low, 0) + min(high, 0) < 0:
            return f"axis {axis} is cropped by more elements than it has"
        parts[axis] = (max(-low, 0), high if high < 0 else END)
    cropped = edit.slice(edit.input(), parts)
    rest = [max(p, 0) for p in pads]
    if not any(rest):
        return edit.become(cropped)
    edit.set_input(0, cropped)
    edit.set_input(1, edit.integers(rest, "pads"))
    return ""


QUIRK = Quirk(
    id="pad-negative",
    code="DP623",
    title="Pad that crops",
    ops=("Pad",),
    outcome="wrong numbers",
    sources=(MEASURED, DML_OPERATORS + "Padding.cpp"),
    matches=_matches,
    rewrite=_rewrite,
)


_NOT_NEGATIVE = frozenset({"Relu", "Sigmoid", "HardSigmoid", "Abs", "Exp", "Softmax", "Softplus"})
"""Operators without negative outputs: zeros around their outputs do not change the result of MaxPool."""


def _pads(node: NodeFacts) -> list[int]:
    return list((node.integers(1) if node.input(1) is not None else node.attribute("pads", None)) or ())


def _is_negative_nowhere(node: NodeFacts) -> bool:
    low = node.input(1) if node.key == "Clip" else None
    least = node.attribute("min", None) if low is None else scalar(low)
    return node.key in _NOT_NEGATIVE or (node.key == "Clip" and least is not None and least >= 0)


def _matches_pool(node: NodeFacts) -> str | Match:
    x, value, pool, pads = node.input(0), node.input(2), only_consumer(node.output()), _pads(node)
    if x is None or pool is None or pool.key != "MaxPool" or pool.attribute("auto_pad", "NOTSET") != "NOTSET":
        return ""
    if x.producer is not None and _is_negative_nowhere(x.producer):
        return ""
    half, mode = len(pads) // 2, node.attribute("mode", "constant")
    outer = pads[:2] + pads[half : half + 2]  # pads of batch and channels: not fused
    if node.input(3) is not None or mode != "constant" or not any(pads) or min(pads) < 0 or any(outer):
        return ""
    zero = node.attribute("value", 0.0) == 0 if value is None else scalar(value) == 0
    return Match("the MaxPool after it picks the padded zeros where the data is negative", sure=False) if zero else ""


def _rewrite_pool(facts: NodeFacts, edit: Edit) -> str:
    """Put the Pad between Unsqueeze and Squeeze, which stop the fusion."""
    pads = _pads(facts)
    half = len(pads) // 2
    pads = [0, *pads[:half], 0, *pads[half:]]
    if facts.input(1) is None:
        edit.set("pads", pads)
    else:
        edit.set_input(1, edit.integers(pads, "pads"))
    edit.set_input(0, edit.unsqueeze(edit.input(), 0, facts.opset))
    padded = edit.before("Pad", list(edit.node.inputs), edit.node.attributes, dtype=edit.output.dtype)
    return edit.become(edit.squeeze(padded, 0, facts.opset))


QUIRK_POOL = Quirk(
    id="pad-before-maxpool",
    code="DP690",
    title="Pad with zeros before MaxPool",
    ops=("Pad",),
    outcome="wrong numbers",
    first="1.19",
    sources=("measured on 1.24.4 and 1.30.0", ORT_SOURCE + "onnxruntime/core/optimizer/pad_fusion.cc"),
    matches=_matches_pool,
    rewrite=_rewrite_pool,
)


def _matches_half(node: NodeFacts) -> str:
    x, value = node.input(0), node.attribute("value", 0.0)
    constant = node.attribute("mode", "constant") == "constant"
    half = x is not None and x.type == "float16" and node.input(1) is None
    return f"value {value:g} of an FP16 Pad before opset 11" if half and constant and value and any(_pads(node)) else ""


def _rewrite_half(_facts: NodeFacts, edit: Edit) -> str:
    """Cast to FP32, pad, and cast back to FP16."""
    wide = edit.cast(edit.input(), ir.DataType.FLOAT)
    padded = edit.before("Pad", [wide], edit.node.attributes, like=wide)
    return edit.become(edit.cast(padded, ir.DataType.FLOAT16))


QUIRK_HALF = Quirk(
    id="pad-half-value",
    code="DP691",
    title="Pad in FP16 with a value before opset 11",
    ops=("Pad",),
    outcome="wrong numbers",
    sources=(MEASURED, "https://github.com/microsoft/onnxruntime/issues/1774"),
    matches=_matches_half,
    rewrite=_rewrite_half,
    mended_at=11,
)
