"""The memory that DirectML's own kernels need besides their tensors: weights in other forms, and scratch memory.

All of it was measured with DirectML 1.15.4 without metacommands, operator by operator (``docs/memory.md``). A driver
with kernels of its own may store weights differently.
"""

from __future__ import annotations

from math import prod

from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.directml.vram.fused import SizeOf

TILE = 64
"""Rows that a matrix product computes at a time (a tile); kernels for fewer rows compute the remaining rows."""

_HALF_TILE = 32
_FILLED = 48
"""If more rows than this remain, the matrix product computes them as a whole tile, not with smaller kernels."""

_FEW = 32
"""The most output channels with which a convolution keeps its weights unchanged."""

_LIKE = 0.7
"""Two copies of weights use the same memory if the smaller one has at least this share of the larger one's size."""


def weight_copies(rows: int) -> int:
    """The number of copies of its weights that a matrix product with this many rows needs.

    It needs one copy for each kind of kernel among which it divides its rows. 128 rows are two tiles: one copy. 100
    rows are a tile, half a tile and four rows: three copies.
    """
    rest = rows % TILE
    if rest > _FILLED:
        return 1
    return max((rows >= TILE) + (rest >= _HALF_TILE) + (rest % _HALF_TILE > 0), 1)


def kept_bytes(node: NodeFacts, value: Value, nbytes: int, *, tiled: bool = False) -> int:
    """The size in bytes of all copies that a fused graph keeps of one weight for one of its nodes.

    Args:
        value: the weight, an input of ``node``.
        nbytes: the size of the weight in bytes.
        tiled: assume that the rows of every matrix product are a multiple of ``TILE``.
    """
    if value is not node.input(1):
        return nbytes
    if node.key in ("MatMul", "Gemm") and value.rank == 2 and not tiled:
        return nbytes * weight_copies(_rows(node))
    is_plain = node.key == "Conv" and node.attribute("group", 1) == 1 and value.static
    if is_plain and value.sizes and value.sizes[0] > _FEW:
        channels, *_, height, width = [*value.sizes, 1, 1][:4]
        step = TILE if height * width == 1 else _HALF_TILE
        return -(-channels // step) * step * (nbytes // channels)
    return nbytes


def _rows(node: NodeFacts) -> int:
    first = node.input(0)
    if first is None or not first.static or not first.sizes:
        return TILE
    if node.key == "Gemm":
        return first.sizes[-1 if node.attribute("transA", 0) else 0]
    return prod(first.sizes[:-1])


def scratch_bytes(node: NodeFacts, size: SizeOf) -> int:
    """The scratch memory of a node in bytes, besides inputs and outputs; 0 for operators that need none.

    Values of unknown size count as 0 bytes.
    """
    first = node.input(0)
    whole = (size(first) or 0) if first is not None else 0
    if node.key == "TopK":
        return 4 * whole
    if node.key not in ("LSTM", "GRU") or first is None or node.input(2) is None:
        return 0
    weights, recurrent = ((size(v) or 0) if (v := node.input(place)) is not None else 0 for place in (1, 2))
    both = node.attribute("direction", "forward") == "bidirectional"
    if node.key == "LSTM":
        return weights + recurrent + _gates(node, first, size) // 2 if both else _gates(node, first, size) // 24
    shared = min(weights, recurrent) >= _LIKE * max(weights, recurrent)
    copies = max(weights, recurrent) if shared else weights + recurrent
    return copies + _gates(node, first, size)


def _gates(node: NodeFacts, first: Value, size: SizeOf) -> int:
    """The size in bytes of an LSTM's or GRU's gates in all steps; 0 if a shape is unknown.

    The gates have the shape [steps, batch, gates * hidden] for each direction; ``first`` is the input with the data.
    """
    weights, bits = node.input(1), (size(first) or 0)
    if weights is None or not weights.static or not first.static or weights.rank != 3 or first.rank != 3:
        return 0
    steps, batch, features = first.sizes
    each = bits // max(steps * batch * features, 1)
    return weights.sizes[0] * steps * batch * weights.sizes[1] * each
