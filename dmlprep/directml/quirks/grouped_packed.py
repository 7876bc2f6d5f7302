"""GroupQueryAttention whose queries, keys and values are one input: DirectML fails to create a session."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk

_SLICE_WITH_INPUTS = 10


def _matches(node: NodeFacts) -> str:
    packed = node.input(0) is not None and node.input(1) is None and node.input(2) is None
    return "queries, keys and values are packed into its first input" if packed else ""


def unpack(facts: NodeFacts, edit: Edit) -> str:
    """Split the first input into queries, keys and values."""
    old, shape = edit.input(), facts.required().shape
    heads, groups = int(facts.attribute("num_heads", 0)), int(facts.attribute("kv_num_heads", 0))
    if shape is None or len(shape) != 3 or not isinstance(shape[2], int):
        return "the size of the last axis of its first input is unknown"
    if heads < 1 or groups < 1 or shape[2] % (heads + 2 * groups):
        return f"its first input has a width of {shape[2]}, which {heads} + 2 x {groups} heads do not divide"
    if edit.graph.opset_imports.get("", _SLICE_WITH_INPUTS) < _SLICE_WITH_INPUTS:
        return f"the rewrite needs opset {_SLICE_WITH_INPUTS}, where starts and ends are inputs of Slice"
    size = shape[2] // (heads + 2 * groups)
    start = 0
    for index, width in enumerate((heads * size, groups * size, groups * size)):
        edit.set_input(index, edit.slice(old, {2: (start, start + width)}, shape=(*shape[:2], width)))
        start += width
    return ""


QUIRK = Quirk(
    id="grouped-packed",
    code="DP656",
    title="GroupQueryAttention with packed queries, keys and values",
    ops=("com.microsoft::GroupQueryAttention",),
    outcome="create fails",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/grouped_forms.py: 80070057 with packed inputs, right with "
        "three",
        "onnxruntime/core/providers/dml/DmlExecutionProvider/src/Operators/DmlOperatorGroupQueryAttention.cpp: the "
        "kernel needs three dimensions of query, key and value",
    ),
    matches=_matches,
    rewrite=unpack,
)
