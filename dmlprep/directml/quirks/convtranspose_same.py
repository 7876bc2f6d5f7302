"""ConvTranspose with SAME padding and a stride."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk


def _matches(node: NodeFacts) -> str:
    pad = node.attribute("auto_pad", "NOTSET")
    strides = node.attribute("strides", [1])
    return f"auto_pad {pad} with strides {list(strides)}" if pad.startswith("SAME") and max(strides) > 1 else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the pads. With SAME the output is stride times the input, so they follow from kernel, stride and dilation.

    total = output_padding + (kernel - 1) * dilation + 1 - stride (ONNX, ConvTranspose, with output = input * stride).
    """
    weight = facts.input(1)
    kernel = list(facts.attribute("kernel_shape", []))
    if not kernel and weight is not None and weight.static:
        kernel = weight.sizes[2:]
    if not kernel:
        return "its kernel's size is not known"
    if facts.has("output_shape"):
        return "it has output_shape as well"
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
