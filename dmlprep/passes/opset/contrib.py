"""Write operators of com.microsoft that DirectML has a kernel for, instead of newer ai.onnx operators.

The operators and the meaning of their attributes: ONNX Runtime 1.24, docs/ContribOperators.md. Each is used only where
it computes the same. Everywhere else the node is lowered without them. SimplifiedLayerNormalization is not in the list:
ONNX Runtime keeps it in ai.onnx, where onnx's checker knows no such operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from dmlprep.passes.opset.build import Builder, T

DOMAIN = "com.microsoft"

_TYPES = (T.FLOAT, T.FLOAT16)  # the types that DirectML's kernels of these operators accept


def as_contrib(b: Builder) -> list[ir.Value | None] | None:
    """Write an equal com.microsoft operator, and return replacements for the node's outputs.

    ``None`` if no operator computes the same; only FP16 and FP32 nodes are rewritten.
    """
    write = CONTRIB.get(str(b.node.op_type))
    if write is None or any(a.is_ref() for a in b.node.attributes.values()):
        return None
    return write(b) if b.values.dtype(b.input(0)) in _TYPES else None


def _write(b: Builder, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
    return b.ops(op_type, *inputs, domain=DOMAIN, **attributes)[0]


def _rotary_embedding(b: Builder) -> list[ir.Value | None] | None:
    """Write com.microsoft.RotaryEmbedding; ``None`` if ranks or sizes do not allow it.

    The operator needs caches [positions, half] and position ids. Without ids, the caches [batch, sequence, half] are
    flattened into one long cache, and the ids count through it.
    """
    x, cos, sin, positions = b.need(0), b.need(1), b.need(2), b.input(3)
    rank, cache_rank = b.values.rank(x), b.values.rank(cos)
    if rank not in (3, 4) or cache_rank != (3 if positions is None else 2):
        return None
    if positions is None:
        half = (b.values.dims(cos) or [None])[-1]
        if not isinstance(half, int):
            return None
        long = b.ints(-1, half)
        count = b.op("Size", b.op("Gather", cos, b.scalar(0), axis=2))
        all_positions = b.op("Range", b.scalar(0), count, b.scalar(1))
        lead = b.op("Shape", cos, start=0, end=2)
        cos, sin = b.op("Reshape", cos, long), b.op("Reshape", sin, long)
        positions = b.op("Reshape", all_positions, lead)
    partial = b.attr("rotary_embedding_dim", 0)
    heads = b.attr("num_heads", 0)
    if partial and not heads:
        heads = (b.values.dims(x) or [None, None])[1] if rank == 4 else None
        if not isinstance(heads, int):
            return None
    turned = {"num_heads": heads, "rotary_embedding_dim": partial} if partial else {}
    operands = x, b.cast(positions, T.INT64), cos, sin
    return [_write(b, "RotaryEmbedding", *operands, interleaved=b.attr("interleaved", 0), **turned)]


def _attention(b: Builder) -> list[ir.Value | None] | None:
    """Write com.microsoft.MultiHeadAttention; ``None`` if it cannot compute the node.

    It cannot with a cache, outputs after the first, softcap, a window, unknown ranks or head counts, or a mask that
    does not fit. Keys and values that several query heads share are repeated. A mask or causality becomes the
    operator's bias.
    """
    if any(b.input(i) is not None for i in (4, 5, 6)) or any(b.asked(i) for i in (1, 2, 3)):
        return None
    if b.attr("softcap", 0.0) or b.attr("left_window_size", -1) != -1 or b.attr("right_window_size", -1) != -1:
        return None
    q, k, v = b.need(0), b.need(1), b.need(2)
    shapes = [b.values.dims(x) for x in (q, k, v)]
    if any(s is None or len(s) != len(shapes[0] or []) for s in shapes):
        return None
    rank = len(shapes[0] or [])
    if rank == 4:
        heads, kv_heads = ((s or [])[1] for s in shapes[:2])
        width = (shapes[2] or [])[3]
    else:
        heads, kv_heads, width = b.attr("q_num_heads"), b.attr("kv_num_heads"), 0
    if not isinstance(heads, int) or not isinstance(kv_heads, int) or not isinstance(width, int) or heads % kv_heads:
        return None
    share = heads // kv_heads
    bias = _attention_bias(b, q, k, rank, shapes)
    if bias is False:
        return None
    empty = _empty_rows(b, bias)
    if empty is not None:
        if rank == 3 and (b.values.dims(empty) or [None, None])[1] != 1:
            return None
        bias = b.op("Where", empty, b.like(0, q), bias)

    def folded(x: ir.Value) -> ir.Value:
        """Reshape [batch, heads, sequence, size] to [batch, sequence, heads * size]; other ranks are unchanged."""
        return x if rank == 3 else b.op("Reshape", b.op("Transpose", x, perm=[0, 2, 1, 3]), b.ints(0, 0, -1))

    def shared(x: ir.Value) -> ir.Value:
        """Repeat each head of keys or values [batch, sequence, kv heads * size] for the query heads that share it."""
        if share == 1:
            return x
        apart = b.op("Reshape", x, b.ints(0, 0, kv_heads, 1, -1))
        return b.op("Reshape", b.op("Expand", apart, b.ints(1, 1, 1, share, 1)), b.ints(0, 0, -1))

    scale = b.attr("scale")
    scale = None if scale is None else float(scale)
    operands = folded(q), shared(folded(k)), shared(folded(v)), None, None, bias or None
    y = _write(b, "MultiHeadAttention", *operands, num_heads=heads, scale=scale)
    if rank == 4:
        y = b.op("Transpose", b.op("Reshape", y, b.ints(0, 0, heads, width)), perm=[0, 2, 1, 3])
    if empty is not None:
        rows = empty if rank == 4 else b.op("Squeeze", empty, b.ints(1))
        y = b.op("Where", rows, b.like(0, q), y)
    return [y]


def _empty_rows(b: Builder, bias: ir.Value | None) -> ir.Value | None:
    """Mark the queries whose keys are all masked: bool[..., queries, 1].

    ``None`` without a bias, or if a constant bias has no such query. For such queries ai.onnx computes 0, but
    com.microsoft does not.
    """
    if bias is None:
        return None
    known = b.values.constant(bias)
    if known is not None and not np.isneginf(known.astype(np.float32).max(axis=-1)).any():
        return None
    return b.op("Equal", b.op("ReduceMax", bias, b.ints(-1), keepdims=1), b.like(-np.inf, bias))


def _attention_bias(
    b: Builder, q: ir.Value, k: ir.Value, rank: int, shapes: list[tuple[Any, ...] | None]
) -> ir.Value | Literal[False] | None:
    """Add mask and causality into one bias [1 or batch, 1 or heads, queries, keys].

    ``None`` if the node has neither; ``False`` if the mask's shape or type does not fit such a bias.
    """
    at = rank - 2
    queries, keys = (shapes[0] or [])[at], (shapes[1] or [])[at]
    mask = b.input(3)
    bias: ir.Value | None = None
    if mask is not None:
        shape = b.values.dims(mask)
        if shape is None or None in (queries, keys) or shape[-2:] != (queries, keys) or len(shape) > 4:
            return False
        lead = [1, 1, *shape][-4:-2]
        heads = (shapes[0] or [])[1] if rank == 4 else b.attr("q_num_heads")
        if lead[0] not in (1, (shapes[0] or [])[0]) or lead[1] not in (1, heads):
            return False
        bias = mask
        if len(shape) < 4:
            bias = b.op("Unsqueeze", bias, b.ints(*range(4 - len(shape))))
        if b.values.dtype(mask) == T.BOOL:
            bias = b.op("Where", bias, b.like(0, q), b.like(-np.inf, q))
        elif b.values.dtype(mask) != b.values.dtype(q):
            return False
    if b.attr("is_causal", 0):
        if isinstance(queries, int) and isinstance(keys, int):
            b.room((queries, keys), np.dtype(np.float64).itemsize, "a causal mask")
            later = np.triu(np.full((1, 1, queries, keys), -np.inf), 1)
            causal = b.like(np.where(np.isnan(later), 0, later), q)
        else:
            rows = b.op("Range", b.scalar(0), b.op("Squeeze", b.dim(q, at), b.ints(0)), b.scalar(1))
            columns = b.op("Range", b.scalar(0), b.op("Squeeze", b.dim(k, at), b.ints(0)), b.scalar(1))
            after = b.op("Greater", columns, b.op("Unsqueeze", rows, b.ints(-1)))
            causal = b.op("Where", b.op("Unsqueeze", after, b.ints(0, 1)), b.like(-np.inf, q), b.like(0, q))
        bias = causal if bias is None else b.op("Add", bias, causal)
    return bias


CONTRIB: dict[str, Callable[[Builder], list[ir.Value | None] | None]] = {
    "Attention": _attention,
    "Gelu": lambda b: [_write(b, "FastGelu" if b.attr("approximate", "none") == "tanh" else "Gelu", b.need(0))],
    "RotaryEmbedding": _rotary_embedding,
    "Swish": lambda b: [_write(b, "QuickGelu", b.need(0), alpha=float(b.attr("alpha", 1.0)))],
}
"""Map from an operator of ai.onnx to the function that writes it as an operator of com.microsoft.

The function returns replacements for the node's outputs, or ``None`` if no operator computes the same."""
