"""Means without keepdims that ONNX Runtime fuses into a LayerNormalization, which computes other numbers.

The optimizer LayerNormFusion does not read ``keepdims``. Without it, the mean [rows] of data [rows, columns] counts for
the columns, not for the rows. SimplifiedLayerNormFusion has the same fault, but not on DirectML.
"""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import ORT_SOURCE, Edit, Match, NodeFacts, Quirk, Value
from dmlprep.directml.quirks.patterns import only_consumer


def _before_cast(value: Value | None) -> Value | None:
    """The value before a Cast; the value itself if no Cast makes it."""
    maker = value.producer if value is not None else None
    return maker.input(0) if maker is not None and maker.key == "Cast" else value


def _maker(value: Value | None, op: str) -> NodeFacts | None:
    """The node that makes a value, if it is an ``op`` and one node reads the value; ``None`` otherwise."""
    maker = value.producer if value is not None and only_consumer(value) is not None else None
    return maker if maker is not None and maker.key == op else None


def _reader(node: NodeFacts | None, op: str) -> NodeFacts | None:
    """The only reader of a node, if it is an ``op``, maybe behind a Cast; ``None`` otherwise."""
    reader = only_consumer(node.output()) if node is not None else None
    if reader is not None and reader.key == "Cast":
        reader = only_consumer(reader.output())
    return reader if reader is not None and reader.key == op else None


def _along_rows(mean: NodeFacts) -> bool:
    """Return whether a ReduceMean computes the mean of each row of floats: along the last axis only."""
    data, axes = mean.input(0), mean.integers(1) if mean.since >= 18 else mean.attribute("axes", [])
    if data is None or data.rank is None or data.type not in ("float", "float16", "double"):
        return False
    return list(axes or []) in ([-1], [data.rank - 1])


def _has_vector(node: NodeFacts | None) -> bool:
    """Return whether a node has an input of one dimension: ONNX Runtime fuses no other weights."""
    return node is not None and any(v is not None and v.rank == 1 for v in node.inputs)


def _subtracted(value: Value | None) -> NodeFacts | None:
    """The ReduceMean in ``value = x - mean(x)``; ``None`` if there is none, or if another operator reads the mean.

    Also ``None`` if the value or the mean is a graph output or has more than two readers.
    """
    sub = value.producer if value is not None and not value.graph_output and len(value.consumers) <= 2 else None
    out = sub.input(1) if sub is not None and sub.key == "Sub" else None
    if out is None or out.producer is None or out.graph_output or len(out.consumers) > 2:
        return None
    mean = out.producer
    subtracted = all(n.key == "Sub" and n.input(0) is mean.input(0) for n in out.consumers)
    return mean if mean.key == "ReduceMean" and subtracted else None


def _fused_means(div: NodeFacts) -> list[NodeFacts]:
    """The two ReduceMeans that ONNX Runtime fuses together with a Div; empty if it does not fuse the Div.

    With d = x - mean(x): ``d / sqrt(mean(d^2) + e) * scale + bias``. Source:
    onnxruntime/core/optimizer/layer_norm_fusion.cc.
    """
    root, scaled = _maker(div.input(1), "Sqrt"), _reader(div, "Mul")
    total = _maker(root.input(0), "Add") if root is not None else None
    means = [m for v in total.inputs if (m := _maker(v, "ReduceMean")) is not None] if total is not None else []
    power = _maker(means[0].input(0), "Pow") if means else None
    if power is None or not (_has_vector(scaled) and _has_vector(_reader(scaled, "Add"))):
        return []
    first, squared = _subtracted(_before_cast(div.input(0))), _subtracted(_before_cast(power.input(0)))
    if first is None or first is not squared or not (_along_rows(first) and _along_rows(means[0])):
        return []
    return [first, means[0]]


def _divs(mean: NodeFacts) -> list[NodeFacts]:
    """The Divs that may divide by the root of a mean, or divide a difference from it."""
    last = _reader(_reader(_reader(mean, "Add"), "Sqrt"), "Div")
    if last is not None:
        return [last]
    out = mean.output()
    differences = [v for n in (out.consumers if out is not None else []) for v in n.outputs if v is not None]
    readers = [n for v in differences for n in v.consumers]
    readers += [n for cast in readers if cast.key == "Cast" for v in cast.outputs if v is not None for n in v.consumers]
    return [n for n in readers if n.key == "Div"]


def _matches(node: NodeFacts) -> Match | str:
    data = node.input(0)
    rows = data.shape[:-1] if data is not None and data.shape is not None else ()
    if node.attribute("keepdims", 1) or all(size == 1 for size in rows):
        return ""
    if not any(node in _fused_means(div) for div in _divs(node)):
        return ""
    text = "ONNX Runtime fuses this mean without keepdims into a LayerNormalization"
    return Match(text, sure=any(isinstance(size, int) and size > 1 for size in rows))


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the mean with keepdims and a Squeeze, which is not fused."""
    rank = facts.rank(0)
    assert rank is not None  # of a match
    edit.set("keepdims", 1)
    return edit.become(edit.squeeze(edit.twin(), rank - 1, facts.opset))


QUIRK = Quirk(
    id="norm-keepdims",
    code="DP692",
    title="Means without keepdims that become a LayerNormalization",
    ops=("ReduceMean",),
    outcome="wrong numbers",
    sources=(
        f"{ORT_SOURCE}onnxruntime/core/optimizer/layer_norm_fusion.cc",
        "https://github.com/microsoft/onnxruntime/issues/30513",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
