"""Blocked QuantizeLinear and DequantizeLinear: since ONNX Runtime 1.25 DirectML reads scales that are not there.

Weights of four bits that a MatMul reads are another matter: ONNX Runtime's optimizer makes a MatMulNBits of both nodes,
which is right since 1.22, and has no session before.
"""

from __future__ import annotations

from dataclasses import replace

from dmlprep.quirks.editing import Edit
from dmlprep.quirks.patterns import only_consumer
from dmlprep.quirks.quantize_axis import Layout, rewrite, widen
from dmlprep.quirks.quirk import Quirk
from dmlprep.targets.facts import NodeFacts

_FUSED = frozenset({16, 32, 64, 128, 256})
"""Sizes of blocks of MatMulNBits."""


def becomes_nbits(node: NodeFacts) -> bool:
    """Whether ONNX Runtime's optimizer makes a MatMulNBits of a DequantizeLinear and the MatMul that alone reads it."""
    reader, stored, block = only_consumer(node.output()), node.input(0), node.attribute("block_size", 0)
    if node.key != "DequantizeLinear" or reader is None or reader.key != "MatMul" or block not in _FUSED:
        return False
    if reader.input(1) is not node.output() or stored is None or stored.rank != 2 or node.attribute("axis", 1) != 0:
        return False
    constant = all(value is None or value.constant for value in node.inputs)
    depth = stored.shape[0] if stored.shape is not None else None
    return constant and stored.type in ("int4", "uint4") and isinstance(depth, int) and depth % block == 0


def _matches(node: NodeFacts) -> str:
    block = node.attribute("block_size", 0)
    return f"in blocks of {block} along axis {node.attribute('axis', 1)}" if block and not becomes_nbits(node) else ""


def _matches_weights(node: NodeFacts) -> str:
    return f"the weights of a MatMul, in blocks of {node.attribute('block_size', 0)}" if becomes_nbits(node) else ""


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

WEIGHTS = replace(
    QUIRK,
    id="quantize-blocked-weights",
    code="DP665",
    title="weights of four bits in blocks, up to ONNX Runtime 1.21",
    outcome="create fails",
    first="1.20",
    last="1.21",
    ops=("DequantizeLinear",),
    sources=("measured by tests/benchmarks/quirks_by_release.py on 1.20.1 and 1.21.1: 80004005; 1.22.0 is right",),
    matches=_matches_weights,
    rewrite=lambda facts, edit: widen(edit),  # the optimizer leaves blocks of eight bits until 1.25
)
