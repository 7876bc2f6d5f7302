"""Fuse attention into MultiHeadAttention or GroupQueryAttention of com.microsoft, and expand these again.

MultiHeadAttention is a product of queries and keys, scaled and masked, its Softmax, and the product with the values.
GroupQueryAttention is causal attention; several heads of the queries share its keys and values.

Measured (``tests/benchmarks/fused_kernels.py``): DirectML's kernel of MultiHeadAttention accepts only a bias of [batch,
heads, queries, keys], so masks are expanded. All nodes with the same mask share one bias. Its kernel of
GroupQueryAttention is causal and accepts no other mask. It needs all three outputs, and ignores a cache. So only
attention of a whole sequence is fused, under a mask that is known to be causal. The kernel masks by adding -10000;
scores of one query with a larger difference defeat this mask.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.passes.fusions.form import Form, Match, Operand, Shared, constant, facts_of, once
from dmlprep.passes.fusions.heads import apart, attend, laid
from dmlprep.passes.fusions.scores import RANK, Attention, Mask, attention, never_empty, spread

_MULTIPLE = 8
"""The head size must be a multiple of this for the CPU provider's kernel of GroupQueryAttention."""

_LOWEST = -1e4
"""The number that DirectML's kernel of GroupQueryAttention adds to masked scores.

A mask is replaced only if it adds this number or a lower one to masked scores.
"""


def _sum(masks: Sequence[Mask], whole: Value, edit: Edit, shared: Shared) -> ir.Value:
    """Write nodes that add all masks, and return the sum: numbers to add to the scores, in the smallest shape.

    Equal sums are written once for each graph (``shared``). ``whole``: the attention weights, which give the type.
    """
    kind = whole.dtype
    assert kind is not None

    def numbers(mask: Mask) -> ir.Value:
        value = mask.node.ir.inputs[mask.index]
        assert value is not None
        if mask.number is None:
            return value
        both = [_number(n, kind, edit, shared) for n in (mask.number, 0.0)]
        slots = [value, *(reversed(both) if mask.inverted else both)]
        return edit.before("Where", slots, dtype=kind, shape=mask.value.sizes)

    def total() -> ir.Value:
        result = numbers(masks[0])
        for mask in masks[1:]:
            result = edit.before("Add", [result, numbers(mask)], dtype=kind)
        return result

    return once(shared, ("mask", *(mask.key for mask in masks)), total)


def _number(number: float, kind: ir.DataType, edit: Edit, shared: Shared) -> ir.Value:
    return once(shared, ("number", number, kind), lambda: edit.constant(np.array(number, kind.numpy()), "number"))


def bias(masks: Sequence[Mask], whole: Value, last: NodeFacts, *, cleared: bool) -> Operand:
    """An input for a fused node: the sum of the masks, expanded to the shape of ``whole``, the attention weights.

    Args:
        whole: the attention weights, [batch, heads, queries, keys].
        last: the product with the values, in whose graph the nodes are written.
        cleared: set rows that are all -inf to 0.
    """

    def get(edit: Edit, shared: Shared) -> ir.Value:
        total, kind = _sum(masks, whole, edit, shared), whole.dtype
        assert kind is not None

        def make() -> ir.Value:
            value = total
            if cleared:
                empty = _empty(total, last, kind, edit, shared)
                value = edit.before("Where", [empty, _number(0.0, kind, edit, shared), value], dtype=kind)
            if max(len(mask.value.sizes) for mask in masks) < RANK or spread(masks) != whole.sizes:
                sizes = edit.integers(whole.sizes, "shape")
                value = edit.before("Expand", [value, sizes], dtype=kind, shape=whole.sizes)
            return value

        return once(shared, ("bias", total, cleared, tuple(whole.sizes)), make)

    return Operand(facts_of("bias", last.graph, whole.type, whole.shape), get)


def _empty(total: ir.Value, last: NodeFacts, kind: ir.DataType, edit: Edit, shared: Shared) -> ir.Value:
    """Write nodes that mark the rows of a mask that are all -inf; return the marks, bool with a last axis of size 1."""

    def make() -> ir.Value:
        axes = [edit.integers([-1], "axes")] if last.opset >= 18 else []
        most = edit.before("ReduceMax", [total, *axes], {} if axes else {"axes": [-1]}, dtype=kind)
        return edit.before("Equal", [most, _number(-np.inf, kind, edit, shared)], dtype=ir.DataType.BOOL)

    return once(shared, ("empty", total), make)


def empty_rows(masks: Sequence[Mask], whole: Value, last: NodeFacts) -> Operand:
    """An input for later nodes that marks the queries whose keys are all masked: bool[batch or 1, queries or 1, 1].

    The masks must be the same for all heads.
    """
    batch, _, queries, _ = spread(masks)
    shape = [batch, queries, 1]

    def get(edit: Edit, shared: Shared) -> ir.Value:
        total, kind = _sum(masks, whole, edit, shared), whole.dtype
        assert kind is not None

        def make() -> ir.Value:
            slots = [_empty(total, last, kind, edit, shared), edit.integers(shape, "shape")]
            return edit.before("Reshape", slots, dtype=ir.DataType.BOOL, shape=shape)

        return once(shared, ("rows", total), make)

    return Operand(facts_of("empty", last.graph, "bool", shape), get)


def _match_multi(last: NodeFacts) -> Match | str | None:
    pattern = attention(last)
    if not isinstance(pattern, Attention):
        return pattern
    batch, heads, queries, _ = pattern.whole.sizes
    rows: Operand | None = None
    if pattern.guarded and pattern.masks and not never_empty(pattern.masks):
        if spread(pattern.masks)[1] != 1:
            return "its mask leaves rows without a key, and other rows in each head"
        rows = empty_rows(pattern.masks, pattern.whole, last)
    mask = bias(pattern.masks, pattern.whole, last, cleared=rows is not None) if pattern.masks else None
    query_scale, query = laid(pattern.product, 0, "BNLD")
    key_scale, key = laid(pattern.product, 1, "BNDL")
    _, value = laid(last, 1, "BNLD", scaled=False)
    scale = pattern.scale * query_scale * key_scale
    if not np.isfinite(scale) or scale == 0:
        return None
    flat, result = [batch, queries, heads * pattern.wide], pattern.giver.output()
    return Match(
        at=last,
        gives=[(pattern.giver, 0)],
        inputs=[query, key, value, *([None, None, mask] if mask is not None else [])],
        attributes={"num_heads": heads, "scale": scale},
        reshaped=[] if result is not None and result.sizes == flat else flat,
        cleared=rows,
    )


_HANDLED = frozenset({0, 1, 2, 5})
"""Indices of the inputs of MultiHeadAttention that dmlprep can expand: query, key, value, bias."""


def _write_multi(facts: NodeFacts, edit: Edit) -> str:
    node = edit.node
    if any(value is not None and index not in _HANDLED for index, value in enumerate(node.inputs)):
        return "it has a bias, a key_padding_mask, or past keys and values"
    if any(v.name and (v.uses() or v.is_graph_output()) for v in node.outputs[1:]):
        return "other nodes read its present keys or values"
    if facts.attribute("unidirectional", 0):
        return "unidirectional is set, and it has no mask"
    known = [facts.input(index) for index in range(3)]
    shapes = [v.sizes for v in known if v is not None and v.static and len(v.sizes) == 3]
    if len(shapes) < 3:
        return "the shapes of its inputs are unknown"
    heads, kind = int(facts.attribute("num_heads", 0)), known[0].dtype if known[0] is not None else None
    if not heads or kind is None:
        return "its num_heads is missing, or its type is unknown"
    query, key, value = (
        apart(edit, node.inputs[i], [batch, length, heads, width // heads], kind, turned=i == 1)
        for i, (batch, length, width) in enumerate(shapes)
    )
    (batch, queries, width), (_, keys, _), (_, _, wide) = shapes
    scale = float(facts.attribute("scale", 0.0)) or (width // heads) ** -0.5
    bias = node.inputs[5] if len(node.inputs) > 5 else None
    return attend(edit, (query, key, value), scale, bias, [batch, heads, queries, keys], wide // heads)


ATTENTION = Form("attention", "MultiHeadAttention", frozenset({"MatMul"}), _match_multi, _write_multi, on_cpu=True)


def _match_grouped(last: NodeFacts) -> Match | str | None:
    pattern = attention(last)
    if not isinstance(pattern, Attention):
        return None  # MultiHeadAttention's form reports the reason
    batch, heads, queries, keys = pattern.whole.sizes
    if queries != keys or queries == 1 or pattern.size != pattern.wide or pattern.size % _MULTIPLE:
        return None
    if not _causal(pattern.masks, queries):
        return None
    query_scale, query = laid(pattern.product, 0, "BNLD")
    key_scale, key = laid(pattern.product, 1, "BNDL", once=True)
    _, value = laid(last, 1, "BNLD", scaled=False, once=True)
    scale, groups = pattern.scale * query_scale * key_scale, key.facts.sizes[2] // pattern.size
    if not np.isfinite(scale) or scale == 0 or key.facts.sizes != value.facts.sizes:
        return None
    flat, result = [batch, queries, heads * pattern.wide], pattern.giver.output()
    lengths = constant("lengths", last.graph, np.full(batch, queries - 1, np.int32))
    total = constant("total", last.graph, np.array(queries, np.int32))
    cache = last.graph, pattern.whole.type, (batch, groups, keys, pattern.size)
    return Match(
        at=last,
        gives=[(pattern.giver, 0)],
        inputs=[query, key, value, None, None, lengths, total],
        attributes={"num_heads": heads, "kv_num_heads": groups, "scale": scale},
        reshaped=[] if result is not None and result.sizes == flat else flat,
        unread=[facts_of(name, *cache) for name in ("present_key", "present_value")],
    )


def _causal(masks: Sequence[Mask], count: int) -> bool:
    """Return whether the masks let each of ``count`` positions see exactly itself and the positions before it.

    False if a mask's numbers are unknown.
    """
    arrays = [array.astype(np.float32) for mask in masks if (array := mask.numbers()) is not None]
    if not arrays or len(arrays) < len(masks):
        return False
    total = sum(arrays[1:], arrays[0])
    same = total.shape[-2:] == (count, count)
    return same and bool(np.all(np.where(np.tri(count, dtype=bool), total == 0, total <= _LOWEST)))


_LONGEST = 4096
"""The most positions for which GroupQueryAttention is expanded: their mask has 64 MiB in FP32."""
_READ = (0, 1, 2, 5, 6)
"""Indices of the inputs of GroupQueryAttention that dmlprep can expand: query, key, value, lengths and total."""
_PLAIN = {"do_rotary": 0, "local_window_size": -1, "softcap": 0.0, "smooth_softmax": 0, "causal": 1}
"""Attributes of GroupQueryAttention, each with the only value that dmlprep can expand."""


def _write_grouped(facts: NodeFacts, edit: Edit) -> str:
    node = edit.node
    if [index for index, value in enumerate(node.inputs) if value is not None] != list(_READ):
        return "it has past keys and values, cos_cache and sin_cache, or packed inputs"
    if any(facts.attribute(name, plain) != plain for name, plain in _PLAIN.items()):
        return "do_rotary, local_window_size, softcap or smooth_softmax is set, or causal is 0"
    query, key, value, lengths, total = (facts.input(index) for index in _READ)
    heads, groups = int(facts.attribute("num_heads", 0)), int(facts.attribute("kv_num_heads", 0))
    shapes = [v.sizes if v is not None and v.static else [] for v in (query, key, value)]
    if any(len(shape) != 3 for shape in shapes) or query is None or query.dtype is None or not heads or not groups:
        return "the shapes of its inputs are unknown"
    (batch, queries, width), *caches = shapes
    if queries > _LONGEST:
        return f"its mask would have {queries} x {queries} numbers"
    size = width // heads
    if any(shape != [batch, queries, groups * size] for shape in caches) or heads % groups:
        return "its inputs are of different lengths"
    known = [v.integers() if v is not None else None for v in (lengths, total)]
    if known != [[queries - 1] * batch, [queries]]:
        return "its sequence lengths are not constant, or some sequences are shorter"
    scale = float(facts.attribute("scale", 0.0)) or size**-0.5
    first, *others = (
        apart(edit, node.inputs[index], [batch, queries, count, size], query.dtype)
        for index, count in enumerate((heads, groups, groups))
    )
    for place, other in enumerate(others, 1):
        if place < len(node.outputs) and node.outputs[place].name:
            edit.replace_output(other, place)
    k, v = (_repeated(edit, other, heads // groups, [batch, groups, queries, size], query.dtype) for other in others)
    shape = [batch, heads, size, queries]
    turned = edit.before("Transpose", [k], {"perm": [0, 1, 3, 2]}, dtype=query.dtype, shape=shape)
    ends = np.where(np.tri(queries, dtype=bool), 0.0, -np.inf).astype(query.dtype.numpy())
    bias = edit.constant(ends[None, None], "causal")
    return attend(edit, (first, turned, v), scale, bias, [batch, heads, queries, queries], size)


def _repeated(edit: Edit, value: ir.Value, times: int, sizes: list[int], kind: ir.DataType) -> ir.Value:
    """Repeat each head of ``value``, [batch, heads, length, size], ``times`` times: head 1, head 1, head 2, head 2."""
    if times == 1:
        return value
    batch, groups, length, size = sizes
    for op, shape in (
        ("Reshape", [batch, groups, 1, length, size]),
        ("Expand", [batch, groups, times, length, size]),
        ("Reshape", [batch, groups * times, length, size]),
    ):
        value = edit.before(op, [value, edit.integers(shape, "shape")], dtype=kind, shape=shape)
    return value


GROUPED = Form(
    "grouped_attention", "GroupQueryAttention", frozenset({"MatMul"}), _match_grouped, _write_grouped, on_cpu=True
)
