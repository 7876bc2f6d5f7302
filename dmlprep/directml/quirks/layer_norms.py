"""Layer normalizations of single operators that ONNX Runtime fuses into one LayerNormalization.

Source: onnxruntime/core/optimizer/layer_norm_fusion.cc (LayerNormFusion, before nodes get their provider).
"""

from __future__ import annotations

from dataclasses import dataclass

from dmlprep.directml.quirks.patterns import only_consumer
from dmlprep.directml.targets.facts import NodeFacts, Value


@dataclass(frozen=True)
class FusedNorm:
    """The nodes of ``(x - mean(x)) / sqrt(variance + epsilon) * scale + bias``.

    Attributes:
        mean: the ReduceMean of x.
        power: the Pow of x - mean(x).
        variance: the ReduceMean of that Pow.
        moved: the Add of epsilon.
        scaled: the Mul by the scale.
        last: the Add of the bias.
    """

    mean: NodeFacts
    power: NodeFacts
    variance: NodeFacts
    moved: NodeFacts
    scaled: NodeFacts
    last: NodeFacts


def fused_norm(div: NodeFacts) -> FusedNorm | None:
    """Return the normalization around a Div, if ONNX Runtime fuses it; ``None`` otherwise."""
    root, scaled = _maker(div.input(1), "Sqrt"), reader(div, "Mul")
    moved = _maker(root.input(0), "Add") if root is not None else None
    variances = [m for v in moved.inputs if (m := _maker(v, "ReduceMean")) is not None] if moved is not None else []
    power = _maker(variances[0].input(0), "Pow") if variances else None
    last = only_consumer(scaled.output()) if scaled is not None else None
    if moved is None or power is None or scaled is None or last is None or last.key != "Add":
        return None
    mean, squared = _subtracted(_before_cast(div.input(0))), _subtracted(_before_cast(power.input(0)))
    if mean is None or mean is not squared or not (_along_rows(mean) and _along_rows(variances[0])):
        return None
    if vector(scaled) is None or vector(last) is None:
        return None
    return FusedNorm(mean, power, variances[0], moved, scaled, last)


def reader(node: NodeFacts | None, op: str) -> NodeFacts | None:
    """Return the only reader of a node, if it is an ``op``, maybe behind a Cast; ``None`` otherwise."""
    consumer = only_consumer(node.output()) if node is not None else None
    if consumer is not None and consumer.key == "Cast":
        consumer = only_consumer(consumer.output())
    return consumer if consumer is not None and consumer.key == op else None


def vector(node: NodeFacts) -> int | None:
    """Return the position of the input of one dimension that ONNX Runtime uses as scale or bias.

    ``None`` if there is none: ONNX Runtime fuses no other weights.
    """
    places = [index for index, value in enumerate(node.inputs) if value is not None and value.rank == 1]
    return places[-1] if places else None


def _before_cast(value: Value | None) -> Value | None:
    """Return the value before a Cast; the value itself if no Cast makes it."""
    maker = value.producer if value is not None else None
    return maker.input(0) if maker is not None and maker.key == "Cast" else value


def _maker(value: Value | None, op: str) -> NodeFacts | None:
    """Return the node that makes a value, if it is an ``op`` and one node reads the value; ``None`` otherwise."""
    maker = value.producer if value is not None and only_consumer(value) is not None else None
    return maker if maker is not None and maker.key == op else None


def _along_rows(mean: NodeFacts) -> bool:
    """Return whether a ReduceMean computes the mean of each row of floats: along the last axis only."""
    data, axes = mean.input(0), mean.integers(1) if mean.since >= 18 else mean.attribute("axes", [])
    if data is None or data.rank is None or data.type not in ("float", "float16", "double"):
        return False
    return list(axes or []) in ([-1], [data.rank - 1])


def _subtracted(value: Value | None) -> NodeFacts | None:
    """Return the ReduceMean in ``value = x - mean(x)``; ``None`` if there is none, or another operator reads the mean.

    Also ``None`` if the value or the mean is a graph output or has more than two readers.
    """
    sub = value.producer if value is not None and not value.graph_output and len(value.consumers) <= 2 else None
    out = sub.input(1) if sub is not None and sub.key == "Sub" else None
    if out is None or out.producer is None or out.graph_output or len(out.consumers) > 2:
        return None
    mean = out.producer
    subtracted = all(n.key == "Sub" and n.input(0) is mean.input(0) for n in out.consumers)
    return mean if mean.key == "ReduceMean" and subtracted else None
