"""GroupQueryAttention without its caches as outputs: DirectML makes no session of it."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk

_OUTPUTS = 3


def _matches(node: NodeFacts) -> str:
    named = [bool(value.name) for value in node.ir.outputs[:_OUTPUTS]]
    return "" if named == [True] * _OUTPUTS else "its caches are no outputs of it"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Name the outputs, which nothing reads."""
    node = edit.node
    node.resize_outputs(max(_OUTPUTS, len(node.outputs)))
    for value in node.outputs[:_OUTPUTS]:
        if not value.name:
            value.name, value.type = edit.value_name("cache"), node.outputs[0].type
    return ""


QUIRK = Quirk(
    id="grouped-outputs",
    code="DP648",
    title="GroupQueryAttention without its caches as outputs",
    ops=("com.microsoft::GroupQueryAttention",),
    outcome="create fails",
    sources=(
        "measured by tests/benchmarks/fused_kernels.py: with the first output alone 1.30.0 makes no session (80070057) "
        "and 1.24.4 does not load the model; right with all three, whether they are read or not",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
