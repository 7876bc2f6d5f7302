"""Matchers of quirks of operators between DequantizeLinear and QuantizeLinear, which ONNX Runtime joins."""

from __future__ import annotations

import numpy as np

from dmlprep.targets.facts import NodeFacts, Value

__all__ = ["idle_clip", "quantized_unary"]

_LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}

_UNSIGNED = frozenset({"Conv", "MatMul"})
"""Operators that ONNX Runtime makes quantized ones of in int8 on ARM64 only (QDQIsInt8Allowed, mlas.h)."""


def idle_clip(node: NodeFacts) -> str:
    """Matcher: a node between DequantizeLinear and QuantizeLinear whose Relu or Clip the QuantizeLinear makes idle.

    Source: onnxruntime/core/optimizer/qdq_transformer/selectors_actions/qdq_selectors.cc. From 1.21 on the selection
    of such a group looks through the Relu or Clip, and does not hand it on to what builds the quantized operator: the
    new node takes the name and the inputs of the old one, and the old one stays, because the Relu still reads it.
    """
    clip = _only_reader(node.output())
    if clip is None or clip.domain or clip.op not in ("Relu", "Clip") or clip.graph != node.graph:
        return ""
    quantize = _only_reader(clip.output())
    if quantize is None or quantize.key != "QuantizeLinear" or quantize.input(0) is not clip.output():
        return ""
    limits = _quantization(quantize)
    if limits is None or not _is_idle(clip, *limits):
        return ""
    out = quantize.output()
    kind = out.type if out is not None else ""
    if kind not in _LIMITS or not _dequantized(node, kind):
        return ""
    detail = f"{clip.op} {clip.label} before QuantizeLinear, which saturates there"
    if kind == "int8" and node.op in _UNSIGNED:
        detail += "; for int8 it may hold on ARM64 only"
    return detail


def quantized_unary(node: NodeFacts) -> str:
    """Matcher: an operator that ONNX Runtime makes a quantized one of, for which DirectML has no kernel."""
    reader = _only_reader(node.output())
    if reader is not None and reader.key in ("Relu", "Clip"):
        reader = _only_reader(reader.output())
    out = reader.output() if reader is not None and reader.key == "QuantizeLinear" else None
    if out is None or out.type not in _LIMITS or not _dequantized(node, out.type):
        return ""
    return f"{node.op} between DequantizeLinear and QuantizeLinear of {out.type}"


def _only_reader(value: Value | None) -> NodeFacts | None:
    if value is None or value.graph_output or len(value.consumers) != 1:
        return None
    return value.consumers[0]


def _quantization(quantize: NodeFacts) -> tuple[float, int, str] | None:
    """Scale, zero point and type of a QuantizeLinear whose scale is a constant scalar."""
    scale, zero, out = quantize.input(1), quantize.input(2), quantize.output()
    array = scale.array() if scale is not None else None
    if array is None or array.ndim or array.dtype != np.float32 or out is None:
        return None
    if zero is None:
        return float(array), 0, out.type
    point = zero.array()
    return None if point is None or point.ndim or point.dtype.kind not in "iu" else (float(array), int(point), out.type)


def _is_idle(clip: NodeFacts, scale: float, zero: int, kind: str) -> bool:
    """Whether what the clip cuts off saturates to the same integer without it."""
    if kind not in _LIMITS or scale <= 0:
        return False
    lowest, highest = _LIMITS[kind]
    if clip.op == "Relu":
        return zero == lowest
    bounds = _bounds(clip)
    if bounds is None:
        return False
    below, above = (np.rint(np.float32(bound) / np.float32(scale)) + zero for bound in bounds)
    return bool(below <= lowest and above >= highest)


def _bounds(clip: NodeFacts) -> tuple[float, float] | None:
    """min and max of a Clip where both are constant or left out."""
    found = []
    for index, (name, free) in enumerate((("min", -np.inf), ("max", np.inf)), 1):
        value = clip.input(index)
        if clip.since < 11:
            found.append(float(clip.attribute(name, free)))
        elif value is None:
            found.append(free)
        else:
            array = value.array()
            if array is None or array.size != 1 or array.dtype != np.float32:
                return None
            found.append(float(array.reshape(-1)[0]))
    return found[0], found[1]


def _dequantized(node: NodeFacts, kind: str) -> bool:
    """Whether the inputs of the node are what a quantized operator takes: dequantized from ``kind``.

    A constant bias is quantized by ONNX Runtime itself, and constant weights where there is no quantized bias.
    """
    sources = [_source(value) for value in node.inputs if value is not None]
    if not sources or sources[0] != kind:
        return False
    if node.op != "Conv":
        return all(source == kind for source in sources)
    weight, bias = sources[1], sources[2] if len(sources) > 2 else ""
    if weight == "constant":
        return bias in ("", "constant")
    return weight in _LIMITS and bias in ("", "constant", "int32")


def _source(value: Value) -> str:
    """Element type that a value is dequantized from; ``constant``, or ``other``."""
    if value.constant:
        return "constant"
    maker = value.producer
    if maker is None or maker.key != "DequantizeLinear" or maker.input(0) is None:
        return "other"
    first = maker.input(0)
    return first.type if first is not None else "other"
