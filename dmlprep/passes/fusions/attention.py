"""MultiHeadAttention: a product of queries and keys, scaled and masked, its Softmax, and the product with the values.

Measured (``tests/benchmarks/fused_kernels.py``): DirectML's kernel takes a bias of [batch, heads, queries, keys] only,
so that masks are spread out; one serves all nodes that have the same mask.
"""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.targets.facts import NodeFacts
from dmlprep.passes.fusions.form import Form, Match, Operand
from dmlprep.passes.fusions.heads import apart, attend, laid
from dmlprep.passes.fusions.masks import bias, empty_rows
from dmlprep.passes.fusions.scores import Attention, attention, never_empty, spread


def _match(last: NodeFacts) -> Match | str | None:
    found = attention(last)
    if not isinstance(found, Attention):
        return found
    batch, heads, queries, _ = found.whole.sizes
    rows: Operand | None = None
    if found.guarded and found.masks and not never_empty(found.masks):
        if spread(found.masks)[1] != 1:
            return "which of its rows are empty depends on the head"
        rows = empty_rows(found.masks, found.whole, last)
    mask = bias(found.masks, found.whole, last, cleared=rows is not None) if found.masks else None
    left, query = laid(found.product, 0, "BNLD")
    right, key = laid(found.product, 1, "BNDL")
    _, value = laid(last, 1, "BNLD", scaled=False)
    scale = found.scale * left * right
    if not np.isfinite(scale) or scale == 0:
        return None
    flat, result = [batch, queries, heads * found.wide], found.giver.output()
    return Match(
        at=last,
        gives=[(found.giver, 0)],
        inputs=[query, key, value, *([None, None, mask] if mask is not None else [])],
        attributes={"num_heads": heads, "scale": scale},
        reshaped=[] if result is not None and result.sizes == flat else flat,
        cleared=rows,
    )


_HANDLED = frozenset({0, 1, 2, 5})
"""Inputs that are written out: query, key, value, bias."""


def _write_out(facts: NodeFacts, edit: Edit) -> str:
    node = edit.node
    if any(value is not None and index not in _HANDLED for index, value in enumerate(node.inputs)):
        return "it has a bias of its projections, a mask of its keys, or a cache"
    if any(v.name and (v.uses() or v.is_graph_output()) for v in node.outputs[1:]):
        return "its caches are read"
    if facts.attribute("unidirectional", 0):
        return "it is causal without a mask"
    known = [facts.input(index) for index in range(3)]
    shapes = [v.sizes for v in known if v is not None and v.static and len(v.sizes) == 3]
    if len(shapes) < 3:
        return "the shapes of its inputs are not known"
    heads, kind = int(facts.attribute("num_heads", 0)), known[0].dtype if known[0] is not None else None
    if not heads or kind is None:
        return "its heads are not known"
    query, key, value = (
        apart(edit, node.inputs[i], [batch, length, heads, width // heads], kind, turned=i == 1)
        for i, (batch, length, width) in enumerate(shapes)
    )
    (batch, queries, width), (_, keys, _), (_, _, wide) = shapes
    scale = float(facts.attribute("scale", 0.0)) or (width // heads) ** -0.5
    bias = node.inputs[5] if len(node.inputs) > 5 else None
    return attend(edit, (query, key, value), scale, bias, [batch, heads, queries, keys], wide // heads)


ATTENTION = Form("attention", "MultiHeadAttention", frozenset({"MatMul"}), _match, _write_out, on_cpu=True)
