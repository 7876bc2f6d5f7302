"""ConvTranspose with SAME padding and a stride, in one dimension with output_padding, or with dynamic pads."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.directml.quirks.declaring import MEASURED, Edit, Match, NodeFacts, Quirk


def _matches(node: NodeFacts) -> str | Match:
    """The reason, if DirectML's pads, which are those of a Conv, give another size; they do not for whole strides."""
    pad, x = node.attribute("auto_pad", "NOTSET"), node.input(0)
    strides = node.attribute("strides", [1])
    if not pad.startswith("SAME") or max(strides) <= 1:
        return ""
    sizes = [None] if x is None or x.shape is None else x.shape[2:]
    known = [(d, s) for d, s in zip(sizes, strides, strict=False) if isinstance(d, int)]
    text = f"auto_pad {pad} with strides {list(strides)}"
    if any(d % s for d, s in known):
        return f"{text} on sizes {list(sizes)}, which are not multiples"
    plain = len(known) == len(sizes) and max([*node.attribute("dilations", [1]), 1]) == 1
    if plain and not node.has("output_shape") and not any(node.attribute("output_padding", [])):
        return ""
    return Match(f"{text} on sizes that might not be multiples", sure=False)


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write pads instead of SAME. They follow from kernel, stride and dilation: the output is stride times the input.

    total = output_padding + (kernel - 1) * dilation + 1 - stride (ONNX, ConvTranspose, with output = input * stride).
    """
    weight = facts.input(1)
    kernel = list(facts.attribute("kernel_shape", []))
    if not kernel and weight is not None and weight.static:
        kernel = weight.sizes[2:]
    if not kernel:
        return "the size of its kernel is unknown"
    if facts.has("output_shape"):
        return "it also has output_shape"
    count = len(kernel)
    strides = list(facts.attribute("strides", [1] * count))
    dilations = list(facts.attribute("dilations", [1] * count))
    extra = list(facts.attribute("output_padding", [0] * count))
    totals = [extra[i] + (kernel[i] - 1) * dilations[i] + 1 - strides[i] for i in range(count)]
    if min(totals) < 0:
        return "its stride is longer than its kernel"
    small, large = [total // 2 for total in totals], [total - total // 2 for total in totals]
    edit.set("pads", small + large if facts.attribute("auto_pad") == "SAME_UPPER" else large + small)
    edit.drop("auto_pad")
    data, y = facts.input(0), facts.output()
    if max(extra) > 0 and data is not None and data.shape is not None and y is not None and y.shape is not None:
        sizes = [d * s if isinstance(d, int) else None for d, s in zip(data.shape[2:], strides, strict=True)]
        edit.correct_shape(edit.output, [*y.shape[:2], *sizes])  # onnx adds the output_padding to them
    return ""


QUIRK = Quirk(
    id="convtranspose-same",
    code="DP609",
    title="ConvTranspose with SAME padding and a stride",
    ops=("ConvTranspose",),
    outcome="run fails",
    sources=(MEASURED, "https://github.com/microsoft/onnxruntime/issues/16384"),
    matches=_matches,
    rewrite=_rewrite,
)


def _matches_padding(node: NodeFacts) -> str:
    extra = node.attribute("output_padding")
    return f"output_padding {list(extra)} in one dimension" if extra and node.rank(0) == 3 else ""


def _rewrite_padding(facts: NodeFacts, edit: Edit) -> str:
    """Subtract the output padding from the pad at the end; if that is too small, add a second dimension of size 1."""
    extra = int(facts.attribute("output_padding")[0])
    pads = list(facts.attribute("pads", [0, 0]))
    automatic = facts.attribute("auto_pad", "NOTSET") != "NOTSET" or facts.has("output_shape")
    if automatic and extra:
        return "it also has auto_pad or output_shape"
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


QUIRK_PADDING = Quirk(
    id="convtranspose-output-padding",
    code="DP617",
    title="ConvTranspose in one dimension with output_padding",
    ops=("ConvTranspose",),
    outcome="create fails",
    last="1.29",
    sources=(MEASURED, "https://github.com/hexgrad/kokoro/issues/79 (a model of this form)"),
    matches=_matches_padding,
    rewrite=_rewrite_padding,
)


_PADS, _BIAS = 2, 3


def _matches_dynamic(node: NodeFacts) -> str:
    return "its pads are missing" if node.input(_PADS) is None else "it has a bias" if node.input(_BIAS) else ""


def _rewrite_dynamic(facts: NodeFacts, edit: Edit) -> str:
    """Replace the node by a ConvTranspose, whose pads are an attribute."""
    pads, y = facts.integers(_PADS), facts.output()
    if pads is None:
        return "its pads are not constant" if facts.input(_PADS) else "ONNX Runtime needs its pads"
    inputs = [edit.input(0), edit.input(1), edit.input(_BIAS)]
    shape = None if y is None else y.shape
    new = edit.before("ConvTranspose", inputs, edit.node.attributes, like=edit.output, shape=shape)
    new.producer().attributes["pads"] = ir.AttrInt64s("pads", pads)  # type: ignore[union-attr]
    return edit.become(new)


QUIRK_DYNAMIC = Quirk(
    id="convtranspose-dynamic-pads",
    code="DP680",
    title="ConvTransposeWithDynamicPads with a bias, or without pads",
    ops=("com.microsoft::ConvTransposeWithDynamicPads",),
    outcome="create fails",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/contrib_forms.py: no session (80070057) with a bias; "
        "without pads the run fails (8000FFFF), as on the CPU",
    ),
    matches=_matches_dynamic,
    rewrite=_rewrite_dynamic,
)
