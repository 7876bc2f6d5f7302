"""ConvTranspose in one dimension with output_padding."""

from __future__ import annotations

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    x = node.input(0)
    extra = node.attribute("output_padding")
    return f"output_padding {list(extra)} in one dimension" if extra and x is not None and x.rank == 3 else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Subtract the output padding from the pad at the end; if that is too small, add a second dimension of size 1."""
    extra = int(facts.attribute("output_padding")[0])
    pads = list(facts.attribute("pads", [0, 0]))
    if facts.attribute("auto_pad", "NOTSET") != "NOTSET" or facts.has("output_shape"):
        if extra:
            return "it has auto_pad or output_shape as well"
        edit.drop("output_padding")
        return ""
    edit.drop("output_padding")
    if pads[1] >= extra:
        edit.set("pads", [pads[0], pads[1] - extra])
        return ""
    data, weight = edit.node.inputs[:2]
    assert data is not None
    assert weight is not None
    edit.set_input(0, edit.unsqueeze(data, 2, facts.opset))
    edit.set_input(1, edit.unsqueeze(weight, 2, facts.opset))
    edit.set("output_padding", [0, extra])
    edit.set("pads", [0, pads[0], 0, pads[1]])
    for name in ("strides", "dilations", "kernel_shape"):
        if facts.has(name):
            edit.set(name, [1, *facts.attribute(name)])
    flat = edit.twin()
    return edit.become(edit.squeeze(flat, 2, facts.opset))


QUIRK = Quirk(
    id="convtranspose-output-padding",
    code="DP617",
    title="ConvTranspose in one dimension with output_padding",
    ops=("ConvTranspose",),
    outcome="create fails",
    last="1.29",
    sources=(MEASURED, "https://github.com/hexgrad/kokoro/issues/79 (a model of this form)"),
    matches=_matches,
    rewrite=_rewrite,
)
