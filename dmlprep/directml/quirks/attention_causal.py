"""MultiHeadAttention with ``unidirectional``: DirectML's kernel ignores the attribute, so tokens attend to later ones.

onnxruntime-genai's builder sets the attribute in the decoder of a Whisper model. A step of one token is right.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk

_MASK, _BIAS, _PAST = 4, 5, 6
_LOW = -65504.0
"""The lowest number of FP16: compared with any useful score, its exponential is 0 in FP32 and in FP16."""

_AXES_ARE_AN_INPUT = 13


def _matches(node: NodeFacts) -> str:
    is_one_token = node.rank(0) == 3 and node.required().dims[1] == 1
    return (
        "it must hide later tokens (unidirectional is set)"
        if node.attribute("unidirectional", 0) and not is_one_token
        else ""
    )


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Replace the attribute by a bias that hides later tokens."""
    heads = int(facts.attribute("num_heads", 0))
    if facts.input(_MASK) is not None or facts.input(_BIAS) is not None:
        return "it already has a mask or a bias"
    if facts.rank(0) != 3 or facts.rank(1) != 3 or heads < 1:
        return "its queries and keys might be packed, or do not have three dimensions"
    query, key, past = facts.required(0), facts.required(1), facts.input(_PAST)
    if query.type not in ("float", "float16"):
        return f"a bias of type {query.type} is untested"
    if edit.graph.opset_imports.get("", 0) < _AXES_ARE_AN_INPUT:
        return f"the rewrite needs opset {_AXES_ARE_AN_INPUT}, where axes are an input of Unsqueeze"
    kind = query.numpy_type
    if query.static and key.static and (past is None or past.static):
        before = past.sizes[2] if past is not None else 0
        batch, count = query.sizes[:2]
        total = before + key.sizes[1]
        edit.room((count, total), kind.itemsize, "a bias")
        later = edit.constant(np.triu(np.full((count, total), _LOW, kind), before + 1), "later")
        sizes = (batch, heads, count, total)
        bias = edit.before("Expand", [later, edit.integers(sizes, "shape")], like=later, shape=sizes)
    else:
        bias = _computed_bias(edit, heads, kind)
    edit.set_input(_BIAS, bias)
    edit.drop("unidirectional")
    return ""


def _computed_bias(edit: Edit, heads: int, kind: np.dtype) -> ir.Value:
    """Add nodes that compute the bias at run time, and return it: [batch, heads, tokens, past and present tokens]."""
    past = edit.optional(_PAST)
    sizes, keys = (edit.before("Shape", [edit.input(i)], dtype=ir.DataType.INT64, shape=(3,)) for i in (0, 1))

    def size(of: ir.Value, axis: int) -> ir.Value:
        return edit.before("Gather", [of, edit.constant(np.array(axis, np.int64), "axis")], like=of, shape=())

    count, total = size(sizes, 1), size(keys, 1)
    zero, one = (edit.constant(np.array(number, np.int64), "number") for number in (0, 1))
    start, end = zero, count
    if past is not None:
        start = size(edit.before("Shape", [past], dtype=ir.DataType.INT64, shape=(4,)), 2)
        end, total = (edit.before("Add", [start, value], like=start, shape=()) for value in (count, total))
    rows = edit.before("Range", [start, end, one], like=sizes, shape=(None,))
    columns = edit.before("Range", [zero, total, one], like=sizes, shape=(None,))
    column = edit.before("Unsqueeze", [rows, edit.integers([1], "axes")], like=sizes, shape=(None, 1))
    later = edit.before("Less", [column, columns], dtype=ir.DataType.BOOL, shape=(None, None))
    low, none = (edit.constant(np.array(number, kind), "hidden") for number in (_LOW, 0.0))
    hidden = edit.before("Where", [later, low, none], like=low, shape=(None, None))
    ends = [
        edit.before("Unsqueeze", [each, edit.integers([0], "axes")], like=sizes, shape=(1,))
        for each in (size(sizes, 0), count, total)
    ]
    parts = [ends[0], edit.integers([heads], "heads"), *ends[1:]]
    shape = edit.before("Concat", parts, {"axis": 0}, like=sizes, shape=(4,))
    return edit.before("Expand", [hidden, shape], like=low, shape=(None, heads, None, None))


QUIRK = Quirk(
    id="attention-causal",
    code="DP661",
    title="MultiHeadAttention that hides later tokens (unidirectional)",
    ops=("com.microsoft::MultiHeadAttention",),
    outcome="wrong numbers",
    sources=(
        "measured by tests/benchmarks/quirks_by_release.py: with and without a past, every token "
        "but the last of a run differs by what later ones add; without the attribute it is right",
        "onnxruntime/core/providers/dml/DmlExecutionProvider/src/Operators/DmlOperatorMultiHeadAttention.cpp: it "
        "ignores the attribute",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
