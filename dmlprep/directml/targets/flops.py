"""Floating-point operations of a node, from its shapes: a weight, not a measurement."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.graph.analysis.operators import CONTROL, MOVES

_NO_ARITHMETIC = {
    *(*MOVES, *CONTROL, "Pad", "Shape", "Size", "Cast", "CastLike", "ConstantOfShape", "Range", "ScatterElements"),
    *("ScatterND", "Scatter", "EyeLike", "OneHot", "Where", "NonZero", "Unique", "Constant"),
}


def flops(node: NodeFacts) -> int | None:
    """The number of floating-point operations of a node; a multiply-add counts as two. ``None`` if a shape is unknown.

    Convolutions, matrix products, attention and recurrent layers count by their formulas. Data movement, casts and
    control flow count 0. Any other operator counts one operation for each element of its largest input or output.
    """
    if node.op in _NO_ARITHMETIC:
        return 0
    formula = _FORMULAS.get(node.op)
    if formula is not None:
        return formula(node)
    sizes = [v.size for v in [*node.inputs, *node.outputs] if v is not None]
    known = [s for s in sizes if s is not None]
    return None if len(known) != len(sizes) or not known else max(known)


def _dims(value: Value | None) -> tuple[int, ...] | None:
    return tuple(value.sizes) if value is not None and value.static else None


def _convolution(node: NodeFacts) -> int | None:
    # each output element: C/group * kernel multiply-adds; the weight is [M, C/group, kernel...]
    # ConvTranspose: each input element spreads over M/group * kernel; the weight is [C, M/group, kernel...]
    weight = _dims(node.input(3 if node.op == "QLinearConv" else 1))
    data = _dims(node.input(0) if node.op == "ConvTranspose" else node.output())
    return None if weight is None or data is None else 2 * prod(data) * prod(weight[1:])


def _product(node: NodeFacts) -> int | None:
    a, out = _dims(node.input(0)), _dims(node.output())
    if a is None or out is None:
        return None
    depth = a[-1] if a else 1
    if node.op == "Gemm" and node.attribute("transA", 0) and len(a) == 2:
        depth = a[0]
    return 2 * prod(out) * depth


def _nbits(node: NodeFacts) -> int | None:
    out = _dims(node.output())
    return None if out is None else 2 * prod(out) * int(node.attribute("K", 1))


def _recurrent(node: NodeFacts) -> int | None:
    # W [dirs, gates*H, I] and R [dirs, gates*H, H] at each of [steps, batch]
    data, w, r = _dims(node.input(0)), _dims(node.input(1)), _dims(node.input(2))
    if data is None or w is None or r is None:
        return None
    return 2 * prod(data[:2]) * (prod(w) + prod(r))


_PAST = {"MultiHeadAttention": 6, "GroupQueryAttention": 3, "Attention": 4}
"""Position of the past keys among the inputs."""


def _attention(node: NodeFacts) -> int | None:
    # scores and weighted sum of each query with each key: 2 * size of the output * keys, twice; packed projections
    data, out, keys = _dims(node.input(0)), _dims(node.output()), _keys(node)
    if data is None or out is None or keys is None:
        return None
    weight = _dims(node.input(1)) if node.key == "com.microsoft::Attention" else None
    return 4 * prod(out) * keys + (2 * prod(data) * weight[-1] if weight else 0)


def _keys(node: NodeFacts) -> int | None:
    """Return the number of keys that each query of an attention meets; ``None`` if it is unknown.

    Past keys count, except those in a buffer of GroupQueryAttention, which need not be full.
    """
    data, key, past = (node.input(index) for index in (0, 1, _PAST[node.op]))
    is_packed = key is None or node.key == "com.microsoft::Attention"
    shape, before = _dims(data if is_packed else key), _dims(past) if past is not None else (0, 0)
    if shape is None or len(shape) < 3 or before is None or len(before) < 2:
        return None
    # [batch, steps, ...], or [batch, heads, steps, size]; past keys are [..., steps, size]
    return shape[2 if len(shape) == 4 else 1] + (0 if has_buffer(node) else before[-2])


def has_buffer(node: NodeFacts) -> bool:
    """Return whether a GroupQueryAttention has past keys of the same size as its result: a buffer for both."""
    past, present = node.input(_PAST["GroupQueryAttention"]), node.output(1)
    if node.op != "GroupQueryAttention" or past is None or present is None:
        return False
    return past.shape == present.shape


_CONVOLUTIONS = ("Conv", "ConvInteger", "QLinearConv", "NhwcConv", "FusedConv")
_PRODUCTS = ("MatMul", "MatMulInteger", "QLinearMatMul", "FusedMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")

_FORMULAS: dict[str, Callable[[NodeFacts], int | None]] = {
    **dict.fromkeys((*_CONVOLUTIONS, "DeformConv", "ConvTranspose"), _convolution),
    **dict.fromkeys((*_PRODUCTS, "Gemm", "FusedGemm"), _product),
    "MatMulNBits": _nbits,
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention"), _attention),
}
