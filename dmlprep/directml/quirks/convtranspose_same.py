"""ConvTranspose with SAME padding and a stride."""

from __future__ import annotations

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts


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
    if not kernel and weight is not None and weight.static and weight.shape is not None:
        kernel = [d for d in weight.shape[2:] if isinstance(d, int)]
    if not kernel:
        return "its kernel's size is not known"
    if facts.has("output_shape"):
        return "it has output_shape as well"
    count = len(kernel)
    strides = list(facts.attribute("strides", [1] * count))
    dilations = list(facts.attribute("dilations", [1] * count))
    extra = list(facts.attribute("output_padding", [0] * count))
    upper = facts.attribute("auto_pad") == "SAME_UPPER"
    begin, end = [], []
    for i in range(count):
        total = extra[i] + (kernel[i] - 1) * dilations[i] + 1 - strides[i]
        if total < 0:
            return "its stride is longer than its kernel"
        small, large = total // 2, total - total // 2
        begin.append(small if upper else large)
        end.append(large if upper else small)
    edit.drop("auto_pad")
    edit.set("pads", [*begin, *end])
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
