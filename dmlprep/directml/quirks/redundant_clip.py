"""A Relu or Clip made redundant by the QuantizeLinear after it."""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.declaring import ORT_SOURCE, Edit, Match, NodeFacts, Quirk, Value
from dmlprep.directml.quirks.patterns import only_consumer

LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}
"""Smallest and largest number of the types for which ONNX Runtime makes quantized operators."""

_UNSIGNED = frozenset({"Conv", "MatMul"})
"""Operators for which ONNX Runtime makes quantized ones in int8 on ARM64 only (QDQIsInt8Allowed, mlas.h)."""


def _matches(node: NodeFacts) -> str | Match:
    """The reason, if a Relu or Clip follows a node between DequantizeLinear and QuantizeLinear and is redundant.

    Empty otherwise. The QuantizeLinear makes it redundant, since it saturates at the same limits.

    Source: onnxruntime/core/optimizer/qdq_transformer/selectors_actions/qdq_selectors.cc. From 1.21 on, the selection
    of such a group skips the Relu or Clip. But it does not pass the Relu or Clip to the code that builds the quantized
    operator. The new node gets the name and the inputs of the old node. The old node stays, because the Relu still
    reads it.
    """
    clip = only_consumer(node.output())
    if clip is None or clip.domain or clip.op not in ("Relu", "Clip") or clip.graph != node.graph:
        return ""
    quantize = only_consumer(clip.output())
    if quantize is None or quantize.key != "QuantizeLinear" or quantize.input(0) is not clip.output():
        return ""
    scale, zero, kind = _quantization(quantize) or (0.0, 0, "")
    if not _is_redundant(clip, scale, zero, kind) or not dequantized(node, kind):
        return ""
    detail = f"{clip.op} {clip.label} before QuantizeLinear, which saturates there"
    if kind == "int8" and node.op in _UNSIGNED:
        return Match(f"{detail}; for int8 perhaps on ARM64 only", sure=False)
    return detail


def _quantization(quantize: NodeFacts) -> tuple[float, int, str] | None:
    """Scale, zero point and type of a QuantizeLinear; an omitted zero point is 0.

    ``None`` unless the scale is a constant FP32 scalar, and the zero point is a constant scalar or omitted.
    """
    array, point, out = quantize.array(1), quantize.array(2), quantize.output()
    if array is None or array.ndim or array.dtype != np.float32 or out is None:
        return None
    if quantize.input(2) is None:
        return float(array), 0, out.type
    return None if point is None or point.ndim or point.dtype.kind not in "iu" else (float(array), int(point), out.type)


def _is_redundant(clip: NodeFacts, scale: float, zero: int, kind: str) -> bool:
    """Return whether quantization gives the same integers without the Relu or Clip: it saturates at the same limits.

    ``scale``, ``zero`` and ``kind`` are those of the QuantizeLinear.
    """
    if kind not in LIMITS or scale <= 0:
        return False
    lowest, highest = LIMITS[kind]
    if clip.op == "Relu":
        return zero == lowest
    bounds = _bounds(clip)
    if bounds is None:
        return False
    below, above = (np.rint(np.float32(bound) / np.float32(scale)) + zero for bound in bounds)
    return bool(below <= lowest and above >= highest)


def _bounds(clip: NodeFacts) -> tuple[float, float] | None:
    """The min and max of a Clip, infinite if omitted; ``None`` if one is not a constant FP32 number."""
    if clip.since < 11:
        return float(clip.attribute("min", -np.inf)), float(clip.attribute("max", np.inf))
    free = {1: np.float32(-np.inf), 2: np.float32(np.inf)}
    arrays = [np.array(free[index]) if clip.input(index) is None else clip.array(index) for index in free]
    bounds = [float(a.reshape(-1)[0]) for a in arrays if a is not None and a.size == 1 and a.dtype == np.float32]
    return (bounds[0], bounds[1]) if len(bounds) == 2 else None


def dequantized(node: NodeFacts, kind: str) -> bool:
    """Return whether a quantized operator accepts the inputs of the node: they are dequantized from ``kind``.

    For a Conv, ONNX Runtime itself quantizes a constant bias, and constant weights if there is no quantized bias.
    """
    sources = [_source(value) for value in node.inputs if value is not None]
    if not sources or sources[0] != kind:
        return False
    if node.op != "Conv":
        return all(source == kind for source in sources)
    weight, bias = sources[1], sources[2] if len(sources) > 2 else ""
    if weight == "constant":
        return bias in ("", "constant")
    return weight in LIMITS and bias in ("", "constant", "int32")


def _source(value: Value) -> str:
    """The element type from which a DequantizeLinear computes a value; ``constant`` for a constant, else ``other``."""
    if value.constant:
        return "constant"
    maker = value.producer
    first = maker.input(0) if maker is not None and maker.key == "DequantizeLinear" else None
    return first.type if first is not None else "other"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Remove the Relu or Clip: the values that it cuts off saturate to the same integer."""
    (clip, _), *_ = edit.node.outputs[0].uses()
    (reader, index), *_ = clip.outputs[0].uses()
    reader.replace_input_with(index, edit.node.outputs[0])
    edit.graph.remove(clip, safe=True)
    return ""


QUIRK = Quirk(
    id="redundant-clip",
    code="DP619",
    title="an activation made redundant by QuantizeLinear",
    ops=("Conv", "MatMul", "Add", "Concat", "AveragePool", "GlobalAveragePool", "Sigmoid"),
    outcome="create fails",
    first="1.21",
    sources=(
        "measured on onnxruntime-directml 1.21.1, 1.22.0, 1.23.0 and 1.24.4; 1.20.1 loads it",
        ORT_SOURCE + "onnxruntime/core/optimizer/qdq_transformer/selectors_actions/qdq_selectors.cc",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
