"""GroupQueryAttention that rotates its queries and keys itself: DirectML does not rotate them, and reports no error.

The rewrite inserts the rotation as two RotaryEmbedding nodes, at the positions that the node computes from the lengths
of its sequences. All new nodes except a Shape run on DirectML, so that a session can still capture its graph.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.declaring import END, Edit, NodeFacts, Quirk, Value
from dmlprep.directml.quirks.grouped_norm import norms

_QUERY, _KEY, _LENGTHS, _COSINES, _SINES, _POSITIONS = 0, 1, 5, 7, 8, 9
_POSITIONS_KEY = "dmlprep.positions"
"""Key in the ``meta`` of a value with lengths: the positions that ``_positions`` computed from it."""

_LEAST = 128
"""The fewest rows of a table of positions: ONNX Runtime keeps nodes that read 100 constant numbers or fewer on the CPU.
"""


def _table(value: Value | None) -> tuple[int, int] | None:
    """Rows and columns of a table of cosines; ``None`` if they are unknown.

    If an If chooses between tables of equal width, the rows are those of the longest.
    """
    maker = value.producer if value is not None else None
    if value is not None and maker is not None and maker.op == "If":
        place = maker.outputs.index(value)
        tables = [_table(branch.outputs[place]) for branch in maker.subgraphs.values()]
        sizes = [table for table in tables if table is not None]
        alike = len(sizes) == len(tables) and len({width for _, width in sizes}) == 1
        return max(sizes) if alike else None
    if value is None or not value.static or value.rank != 2 or 0 in value.sizes:
        return None
    return value.sizes[0], value.sizes[1]


def _matches(node: NodeFacts) -> str:
    """The reason, if the node rotates; empty otherwise, and for a node that also normalizes.

    A node normalizes before it rotates, so the quirk ``grouped-norm`` rewrites the normalization first.
    """
    return "it rotates its queries and keys" if node.attribute("do_rotary", 0) and not norms(node) else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Rotate queries and keys before the node."""
    table = _table(facts.input(_COSINES))
    query, key, lengths, cosines, sines, positions = map(
        edit.optional, (_QUERY, _KEY, _LENGTHS, _COSINES, _SINES, _POSITIONS)
    )
    if query is None or key is None or lengths is None:
        return "its keys are packed into its first input, or it has no seqlens_k"
    if cosines is None or sines is None:
        return "it has no cos_cache and sin_cache"
    if table is None:
        return "the sizes of its cosines (cos_cache) are unknown"
    rows, half = table
    wanted = {}
    for index, name in ((_QUERY, "num_heads"), (_KEY, "kv_num_heads")):
        heads = int(facts.attribute(name, 0))
        width = facts.required(index).dims[2] if facts.rank(index) == 3 else None
        if not isinstance(width, int) or heads < 1 or width % heads or 2 * half > width // heads:
            return "the last axis of its queries or keys is unknown, or does not fit its cosines"
        wanted[index] = (heads, width // heads)
    if positions is None:
        positions = _positions(facts, edit, query, lengths, rows)
    for index, (heads, size) in wanted.items():
        part = {"rotary_embedding_dim": 2 * half} if 2 * half < size else {}
        attributes = {"interleaved": int(facts.attribute("rotary_interleaved", 0)), "num_heads": heads, **part}
        data = query if index == _QUERY else key
        rotated = edit.new_value("rotated", data.type, data.shape if data.type is not None else None)
        rotary = edit.new_node("RotaryEmbedding", [data, positions, cosines, sines], [rotated], "rotate", attributes)
        rotary.domain = "com.microsoft"
        edit.graph.insert_before(edit.node, rotary)
        edit.set_input(index, rotated)
    for index in (_COSINES, _SINES, _POSITIONS):
        edit.set_input(index, None)
    edit.shorten()
    edit.drop("do_rotary", "rotary_interleaved")
    return ""


def _positions(facts: NodeFacts, edit: Edit, query: ir.Value, lengths: ir.Value, rows: int) -> ir.Value:
    """Add nodes that compute the position of each token, int64 [batch, tokens], and return that value.

    Nodes with the same lengths, ``rows`` and sizes of batch and tokens share it, unless such a size is unknown.
    ``rows`` is the number of rows of the table of cosines.

    Sequence b has lengths[b] + 1 tokens; the present tokens are the last T: token t is at lengths[b] - (T - 1 - t). In
    a prompt without a cache, whose shorter sequences are padded on the right, the token is at t. The larger of the two
    is right in both cases.
    """
    tokens = facts.required(_QUERY).dims[:2]
    cached = lengths.meta.get(_POSITIONS_KEY)
    if cached is not None and None not in tokens and cached[0] == (tokens, rows) and cached[1].graph is edit.graph:
        known: ir.Value = cached[1]
        return known
    single, whole = ir.DataType.INT32, ir.DataType.INT64
    count = edit.before("Shape", [query], dtype=whole, shape=[3])
    count = edit.slice(count, {0: (1, 2)}, like=count, shape=[1])
    most = max(rows, _LEAST)
    up = edit.constant(np.arange(most, dtype=np.int32), "positions")
    down = edit.constant(np.arange(most - 1, -1, -1, dtype=np.int32), "positions_back")
    zero, end = edit.integers([0], "start"), edit.integers([END], "end")
    first = edit.before("Slice", [up, zero, count], dtype=single, shape=[tokens[1]])
    back = edit.before("Neg", [count], dtype=whole, shape=[1])
    distances = edit.before("Slice", [down, back, end], dtype=single, shape=[tokens[1]])
    column = edit.before("Reshape", [lengths, edit.integers([-1, 1], "column")], dtype=single, shape=[tokens[0], 1])
    behind = edit.before("Sub", [column, distances], dtype=single, shape=list(tokens))
    larger = edit.before("Max", [behind, first], dtype=single, shape=list(tokens))
    positions = edit.before("Cast", [larger], {"to": int(whole)}, dtype=whole, shape=list(tokens))
    lengths.meta[_POSITIONS_KEY] = ((tokens, rows), positions)
    return positions


QUIRK = Quirk(
    id="grouped-rotary",
    code="DP657",
    title="GroupQueryAttention that rotates queries and keys",
    ops=("com.microsoft::GroupQueryAttention",),
    outcome="wrong numbers",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/grouped_forms.py: with do_rotary the keys come out as they "
        "went in",
        "onnxruntime/core/providers/dml/DmlExecutionProvider/src/Operators/DmlOperatorGroupQueryAttention.cpp reads "
        "neither do_rotary nor the caches of cosines and sines",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
