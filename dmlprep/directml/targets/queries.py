"""Support queries: nodes that DirectML's provider refuses although the kernel's version and types match.

Each function returns why a node is refused, ``""`` if it is not. Source: ONNX Runtime, onnxruntime/core/providers/dml/
DmlExecutionProvider/src/Operators/DmlOperator*.cpp, the function with the name in ``QUERIES``.
"""

from __future__ import annotations

from collections.abc import Callable

from dmlprep.directml.targets.facts import NodeFacts


def _batch_normalization(node: NodeFacts) -> str:
    if node.attribute("training_mode", 0):
        return "training_mode is on"
    if len(node.inputs) < 5:
        return "fewer than five inputs"
    x = node.input(0)
    for value in node.inputs[1:5]:
        if x is not None and value is not None and value.type and x.type and value.type != x.type:
            return f"{value.name} is {value.type}, but the data is {x.type}"
    return ""


def _scatter(node: NodeFacts) -> str:
    reduction = node.attribute("reduction", "none")
    return f"reduction is {reduction}" if reduction != "none" else ""


def _einsum(node: NodeFacts) -> str:
    if len(node.inputs) > 2:
        return "more than two inputs"
    return "the equation has an ellipsis" if "." in node.attribute("equation", "") else ""


def _resize(node: NodeFacts) -> str:
    if node.attribute("mode", "nearest") == "cubic":
        return "mode is cubic"
    if node.attribute("exclude_outside", 0):
        return "exclude_outside is on"
    return "extrapolation_value is not 0" if node.attribute("extrapolation_value", 0.0) else ""


def _attention(node: NodeFacts) -> str:
    if any(value is not None for value in (node.input(4), node.input(6), node.output(1))):
        return "past or present is used"
    return _on(node, "unidirectional", "do_rotary", "past_present_share_buffer")


def _quantized_attention(node: NodeFacts) -> str:
    if node.attribute("unidirectional", 0) and node.input(5) is not None:
        return "unidirectional with a mask"
    return _on(node, "do_rotary", "past_present_share_buffer")


def _on(node: NodeFacts, *names: str) -> str:
    return next((f"{name} is on" for name in names if node.attribute(name, 0)), "")


def _matmul_nbits(node: NodeFacts) -> str:
    bits, k, block = node.attribute("bits", 4), node.attribute("K", 0), node.attribute("block_size", 1)
    if bits not in (4, 8):
        return f"{bits} bits"
    return "K is not a multiple of block_size" if block and k % block else ""


QUERIES: dict[str, Callable[[NodeFacts], str]] = {
    "QueryMaxPool": lambda node: "storage_order is not 0" if node.attribute("storage_order", 0) else "",
    "QueryBatchNormalization": _batch_normalization,
    "QueryLayerNormalization": lambda node: "Mean or InvStdDev is used" if len(node.outputs) > 1 else "",
    "QuerySkipLayerNormalization": lambda node: "mean or inv_std_var is used" if any(map(node.output, (1, 2))) else "",
    "QueryRecurrentNeuralNetwork": lambda node: "layout is not 0" if node.attribute("layout", 0) else "",
    "QuerySlice": lambda node: "more than five inputs" if len(node.inputs) > 5 else "",
    "QueryPad": lambda node: "negative pads" if any(p < 0 for p in node.attribute("pads", ())) else "",
    "QueryScatter": _scatter,
    "QueryEinSum": _einsum,
    "QueryResize": _resize,
    "QueryQLinearSigmoid": lambda node: "fewer than five inputs" if len(node.inputs) < 5 else "",
    "QueryAttention": _attention,
    "QueryQAttention": _quantized_attention,
    "QueryMatMulNBits": _matmul_nbits,
}
"""Name of a support query -> the function that returns why it refuses a node, ``""`` if it does not."""
