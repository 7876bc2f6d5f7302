"""MultiHeadAttention: a product of queries and keys, scaled and masked, its Softmax, and the product with the values.

Measured (``tests/benchmarks/fused_kernels.py``): DirectML's kernel takes a bias of [batch, heads, queries, keys] only,
so that masks are spread out; one serves all nodes that have the same mask.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.targets.facts import NodeFacts
from dmlprep.passes.fusions.form import Form, Match, Operand
from dmlprep.passes.fusions.heads import laid
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
    node, old = edit.node, edit.node.outputs[0]
    if any(value is not None and index not in _HANDLED for index, value in enumerate(node.inputs)):
        return "it has a bias of its projections, a mask of its keys, or a cache"
    if any(v.name and (v.uses() or v.is_graph_output()) for v in node.outputs[1:]):
        return "its caches are read"
    if facts.attribute("unidirectional", 0):
        return "it is causal without a mask"
    known = [facts.input(index) for index in range(3)]
    if any(v is None or not v.static or len(v.sizes) != 3 for v in known):
        return "the shapes of its inputs are not known"
    heads, kind = int(facts.attribute("num_heads", 0)), known[0].dtype if known[0] is not None else None
    if not heads or kind is None:
        return "its heads are not known"
    apart: list[ir.Value] = []
    for value, fact in zip(node.inputs[:3], known, strict=True):
        assert fact is not None
        batch, length, width = fact.sizes
        to = edit.integers([batch, length, heads, width // heads], "shape")
        split = edit.before("Reshape", [value, to], dtype=kind, shape=[batch, length, heads, width // heads])
        perm = [0, 2, 3, 1] if len(apart) == 1 else [0, 2, 1, 3]
        apart.append(edit.before("Transpose", [split], {"perm": perm}, dtype=kind))
    assert known[0] is not None
    assert known[2] is not None
    batch, queries, width = known[0].sizes
    scale = float(facts.attribute("scale", 0.0)) or (width // heads) ** -0.5
    query = edit.before("Mul", [apart[0], edit.constant(np.array(scale, kind.numpy()), "scale")], dtype=kind)
    scores = edit.before("MatMul", [query, apart[1]], dtype=kind)
    if len(node.inputs) > 5 and node.inputs[5] is not None:
        scores = edit.before("Add", [scores, node.inputs[5]], dtype=kind)
    weights = edit.before("Softmax", [scores], {"axis": 3}, dtype=kind)
    mixed = edit.before("MatMul", [weights, apart[2]], dtype=kind)
    together = edit.before("Transpose", [mixed], {"perm": [0, 2, 1, 3]}, dtype=kind)
    shape = [batch, queries, known[2].sizes[2]]
    return edit.become(edit.before("Reshape", [together, edit.integers(shape, "shape")], like=old, shape=shape))


ATTENTION = Form(
    option="attention",
    op_type="MultiHeadAttention",
    anchors=frozenset({"MatMul"}),
    match=_match,
    write_out=_write_out,
    on_cpu=True,
)
