"""ConvTransposeWithDynamicPads with a bias: DirectML makes no session. Without pads no provider runs it."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk

_PADS, _BIAS = 2, 3


def _matches(node: NodeFacts) -> str:
    return "its pads are left out" if node.input(_PADS) is None else "it has a bias" if node.input(_BIAS) else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write a ConvTranspose, whose pads are an attribute."""
    pads, y = facts.integers(_PADS), facts.output()
    if pads is None:
        return "its pads are not constant" if facts.input(_PADS) else "ONNX Runtime needs its pads"
    inputs = [edit.input(0), edit.input(1), edit.input(_BIAS)]
    shape = None if y is None else y.shape
    new = edit.before("ConvTranspose", inputs, edit.node.attributes, like=edit.output, shape=shape)
    new.producer().attributes["pads"] = ir.AttrInt64s("pads", pads)  # type: ignore[union-attr]
    return edit.become(new)


QUIRK = Quirk(
    id="convtranspose-dynamic-pads",
    code="DP680",
    title="ConvTransposeWithDynamicPads with a bias, or without pads",
    ops=("com.microsoft::ConvTransposeWithDynamicPads",),
    outcome="create fails",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/contrib_forms.py: no session (80070057) with a bias; "
        "without pads the run fails (8000FFFF), as on the CPU",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
