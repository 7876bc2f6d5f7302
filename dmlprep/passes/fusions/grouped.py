"""GroupQueryAttention: causal attention whose keys and values several heads of the queries share.

Measured (``tests/benchmarks/fused_kernels.py``): DirectML's kernel is causal and takes no other mask, wants all three
outputs, and reads no cache that it is given. So only attention of a whole sequence is written, under a mask that is
known to be the causal one. It masks by adding -10000: scores of one query that are further apart outweigh it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.targets.facts import NodeFacts
from dmlprep.passes.fusions.form import Form, Match, constant, facts_of
from dmlprep.passes.fusions.heads import apart, attend, laid
from dmlprep.passes.fusions.scores import Attention, Mask, attention

_MULTIPLE = 8
"""What the CPU provider's kernel wants the size of a head to be a multiple of."""

_LOWEST = -1e4
"""What DirectML's kernel adds to scores that it masks: numbers from here on mask as surely."""


def _match(last: NodeFacts) -> Match | str | None:
    found = attention(last)
    if not isinstance(found, Attention):
        return None  # MultiHeadAttention's form says why
    batch, heads, queries, keys = found.whole.sizes
    if queries != keys or queries == 1 or found.size != found.wide or found.size % _MULTIPLE:
        return None
    if not _causal(found.masks, queries):
        return None
    left, query = laid(found.product, 0, "BNLD")
    right, key = laid(found.product, 1, "BNDL", once=True)
    _, value = laid(last, 1, "BNLD", scaled=False, once=True)
    scale, groups = found.scale * left * right, key.facts.sizes[2] // found.size
    if not np.isfinite(scale) or scale == 0 or key.facts.sizes != value.facts.sizes:
        return None
    flat, result = [batch, queries, heads * found.wide], found.giver.output()
    lengths = constant("lengths", last.graph, np.full(batch, queries - 1, np.int32))
    total = constant("total", last.graph, np.array(queries, np.int32))
    cache = last.graph, found.whole.type, (batch, groups, keys, found.size)
    return Match(
        at=last,
        gives=[(found.giver, 0)],
        inputs=[query, key, value, None, None, lengths, total],
        attributes={"num_heads": heads, "kv_num_heads": groups, "scale": scale},
        reshaped=[] if result is not None and result.sizes == flat else flat,
        unread=[facts_of(name, *cache) for name in ("present_key", "present_value")],
    )


def _causal(masks: Sequence[Mask], count: int) -> bool:
    """Return whether masks let each of so many positions see itself and those before it, and no other."""
    numbers = [mask.numbers() for mask in masks]
    arrays = [array.astype(np.float32) for array in numbers if array is not None]
    if not arrays or len(arrays) < len(masks):
        return False
    total = sum(arrays[1:], arrays[0])
    same = total.shape[-2:] == (count, count)
    return same and bool(np.all(np.where(np.tri(count, dtype=bool), total == 0, total <= _LOWEST)))


_LONGEST = 4096
"""Positions of a mask that is written out: 64 MiB in FP32."""
_READ = (0, 1, 2, 5, 6)
"""Inputs that are written out: query, key, value, lengths and total."""
_PLAIN = {"do_rotary": 0, "local_window_size": -1, "softcap": 0.0, "smooth_softmax": 0, "causal": 1}
"""Attributes that are not written out unless they are this."""


def _write_out(facts: NodeFacts, edit: Edit) -> str:
    node = edit.node
    if [index for index, value in enumerate(node.inputs) if value is not None] != list(_READ):
        return "it has a cache, a rotation, or all of its inputs in one"
    if any(facts.attribute(name, plain) != plain for name, plain in _PLAIN.items()):
        return "it rotates, or has a window or a cap"
    query, key, value, lengths, total = (facts.input(index) for index in _READ)
    heads, groups = int(facts.attribute("num_heads", 0)), int(facts.attribute("kv_num_heads", 0))
    shapes = [v.sizes if v is not None and v.static else [] for v in (query, key, value)]
    if any(len(shape) != 3 for shape in shapes) or query is None or query.dtype is None or not heads or not groups:
        return "the shapes of its inputs are not known"
    (batch, queries, width), *caches = shapes
    if queries > _LONGEST:
        return f"its mask would have {queries} x {queries} numbers"
    size = width // heads
    if any(shape != [batch, queries, groups * size] for shape in caches) or heads % groups:
        return "its inputs are of different lengths"
    known = [v.integers() if v is not None else None for v in (lengths, total)]
    if known != [[queries - 1] * batch, [queries]]:
        return "some of its sequences may be shorter"
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
    """Each head ``times`` times, one after the other."""
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


GROUPED = Form("grouped_attention", "GroupQueryAttention", frozenset({"MatMul"}), _match, _write_out, on_cpu=True)
