"""Blocked QuantizeLinear and DequantizeLinear: since ONNX Runtime 1.25 DirectML reads scales that are not there."""

from __future__ import annotations

from dmlprep.quirks.editing import Edit
from dmlprep.quirks.quantize_axis import Layout, rewrite
from dmlprep.quirks.quirk import Quirk
from dmlprep.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    block = node.attribute("block_size", 0)
    return f"in blocks of {block} along axis {node.attribute('axis', 1)}" if block else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """The arithmetic, on data whose blocked axis is two: the number of blocks, and the block."""
    x, block = facts.input(0), int(facts.attribute("block_size", 0))
    sizes = x.shape if x is not None else None
    if sizes is None or not all(isinstance(size, int) for size in sizes):
        return "the shape of its data is not known"
    whole = tuple(int(size) for size in sizes if isinstance(size, int))
    axis = int(facts.attribute("axis", 1)) % len(whole)
    if whole[axis] % block:
        return f"{whole[axis]} elements along axis {axis} are no whole number of blocks of {block}"
    before, after = whole[:axis], whole[axis + 1 :]
    blocks = whole[axis] // block
    layout = Layout((*before, blocks, block, *after), (*before, blocks, 1, *after), whole)
    return rewrite(facts, edit, layout)


QUIRK = Quirk(
    id="quantize-blocked",
    code="DP642",
    title="blocked quantization since ONNX Runtime 1.25",
    ops=("QuantizeLinear", "DequantizeLinear"),
    outcome="wrong numbers",
    first="1.25",
    sources=(
        "measured on onnxruntime-windowsml 1.25.2 and 1.30.0: the numbers differ from run to run; 1.24.4 is right",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
