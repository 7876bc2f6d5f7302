"""Means without keepdims that ONNX Runtime fuses into a LayerNormalization, which computes other numbers.

The optimizer LayerNormFusion does not read ``keepdims``. Without it, the mean [rows] of data [rows, columns] counts for
the columns, not for the rows. SimplifiedLayerNormFusion has the same fault, but not on DirectML.
"""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import ORT_SOURCE, Edit, Match, NodeFacts, Quirk
from dmlprep.directml.quirks.layer_norms import fused_norm, reader


def _divs(mean: NodeFacts) -> list[NodeFacts]:
    """The Divs that may divide by the root of a mean, or divide a difference from it."""
    last = reader(reader(reader(mean, "Add"), "Sqrt"), "Div")
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
    norms = [norm for div in _divs(node) if (norm := fused_norm(div)) is not None]
    if not any(node in (norm.mean, norm.variance) for norm in norms):
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
