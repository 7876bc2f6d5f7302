"""ConvTranspose in one dimension with output_padding."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk


def _matches(node: NodeFacts) -> str:
    extra = node.attribute("output_padding")
    return f"output_padding {list(extra)} in one dimension" if extra and node.rank(0) == 3 else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Subtract the output padding from the pad at the end; if that is too small, add a second dimension of size 1."""
    extra = int(facts.attribute("output_padding")[0])
    pads = list(facts.attribute("pads", [0, 0]))
    automatic = facts.attribute("auto_pad", "NOTSET") != "NOTSET" or facts.has("output_shape")
    if automatic and extra:
        return "it has auto_pad or output_shape as well"
    edit.drop("output_padding")
    if automatic:
        return ""
    if pads[1] >= extra:
        edit.set("pads", [pads[0], pads[1] - extra])
        return ""
    for index in (0, 1):
        edit.set_input(index, edit.unsqueeze(edit.input(index), 2, facts.opset))
    edit.set("output_padding", [0, extra])
    edit.set("pads", [0, pads[0], 0, pads[1]])
    for name in ("strides", "dilations", "kernel_shape"):
        if facts.has(name):
            edit.set(name, [1, *facts.attribute(name)])
    return edit.become(edit.squeeze(edit.twin(), 2, facts.opset))


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
