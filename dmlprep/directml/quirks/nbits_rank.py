"""MatMulNBits of a vector or of more than four dimensions; MatMul of a vector that becomes a MatMulNBits."""

from __future__ import annotations

from dataclasses import replace

from dmlprep.directml.quirks.declaring import DML_OPERATORS, ORT_SOURCE, Edit, NodeFacts, Quirk
from dmlprep.directml.quirks.patterns import only_consumer
from dmlprep.directml.quirks.quantize_axis import per_axis
from dmlprep.directml.quirks.quantize_blocked import becomes_nbits

_MOST = 4
"""The most dimensions of data that DirectML's kernel accepts; the fewest are two."""

_TYPES = frozenset({"int4", "uint4", "int8", "uint8"})


def _matches_nbits(node: NodeFacts) -> str:
    rank = node.rank(0)
    if rank is None or 2 <= rank <= _MOST:
        return ""
    return "its data is a vector" if rank == 1 else f"its data has {rank} dimensions"


def _weights_of(node: NodeFacts) -> NodeFacts | None:
    """The DequantizeLinear of the weights of a MatMul with a vector, if no other node reads it; ``None`` otherwise.

    Its input must be a constant matrix of four or eight bits.
    """
    weights = node.input(1)
    maker = weights.producer if weights is not None else None
    if node.rank(0) != 1 or maker is None or maker.key != "DequantizeLinear":
        return None
    stored = maker.input(0)
    fits = stored is not None and stored.constant and stored.rank == 2 and stored.type in _TYPES
    return maker if fits and only_consumer(weights) is node else None


def _matches_fused(node: NodeFacts) -> str:
    maker = _weights_of(node)
    if maker is None or (maker.attribute("axis", 1) != 0 if maker.attribute("block_size", 0) else per_axis(maker) == 0):
        return ""
    return "it multiplies a vector with quantized weights"


def _matches_fused_blocks(node: NodeFacts) -> str:
    """The reason, if the node has the quirk up to ONNX Runtime 1.24; empty otherwise.

    On these releases, only weights of four bits, in blocks along the vector, become a MatMulNBits.
    """
    maker = _weights_of(node)
    return _matches_fused(node) if maker is not None and becomes_nbits(maker) else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Reshape the data to a matrix before the node, and reshape the product back after it."""
    out, value = facts.output(), edit.input()
    if facts.rank(0) == 1:
        rows, result = [1, -1], [-1]
    else:
        sizes = out.shape if out is not None and out.shape is not None else (None, None)
        result = [size if isinstance(size, int) else -1 for size in sizes]
        if result.count(-1) > 1:
            return "the sizes of its data are unknown: pin the free dimensions of the model"
        rows = [-1, int(facts.attribute("K", 0))]
    edit.set_input(0, edit.before("Reshape", [value, edit.integers(rows, "matrix")], like=value))
    product = edit.twin()
    product.shape = None
    return edit.become(edit.before("Reshape", [product, edit.integers(result, "shape")], like=edit.output))


NBITS = Quirk(
    id="nbits-rank",
    code="DP664",
    title="MatMulNBits of a vector or of more than four dimensions",
    ops=("com.microsoft::MatMulNBits",),
    outcome="create fails",
    sources=(
        "measured by tests/benchmarks/quirks_by_release.py: 80070057 with 1, 5 and 6 dimensions, right with 2, 3 and 4",
        f"{DML_OPERATORS}MatMulNBits.cpp",
    ),
    matches=_matches_nbits,
    rewrite=_rewrite,
)

FUSED = Quirk(
    id="nbits-vector",
    code="DP666",
    title="MatMul of a vector with quantized weights",
    ops=("MatMul",),
    outcome="create fails",
    first="1.25",
    sources=(
        "measured by tests/benchmarks/quirks_by_release.py: 80070057 with graph optimisation, which makes one "
        "MatMulNBits of the two nodes; right without, and with a matrix instead of the vector",
        f"{ORT_SOURCE}onnxruntime/core/optimizer/qdq_transformer/selectors_actions/qdq_selectors.cc",
    ),
    matches=_matches_fused,
    rewrite=_rewrite,
)

FUSED_BLOCKS = replace(FUSED, first="1.20", last="1.24", matches=_matches_fused_blocks)
