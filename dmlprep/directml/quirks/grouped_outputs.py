"""GroupQueryAttention without its caches as outputs, for which DirectML creates no session; or with a past cache.

DirectML's kernel reads the memory of the present keys and values. It reads the past ones only if the application bound
past and present to the same memory, and only for one token.
"""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import DML_OPERATORS, Edit, Match, NodeFacts, Quirk

_OUTPUTS = 3


def _matches(node: NodeFacts) -> str:
    named = [bool(value.name) for value in node.ir.outputs[:_OUTPUTS]]
    return "" if named == [True] * _OUTPUTS else "not all three of its first outputs have names"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Add the missing outputs, which stay unused."""
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


_PAST, _LENGTHS = (3, 4), 5


def _matches_cache(node: NodeFacts) -> str | Match:
    if all(node.input(index) is None for index in _PAST):
        return ""
    tokens = node.required().dims[1] if (node.rank(0) or 0) > 1 else None
    known = node.integers(_LENGTHS)
    if known is None or not isinstance(tokens, int):
        text = "a cache is read only if the application binds past and present to one memory"
        return Match(text, sure=False)
    if max(known, default=0) + 1 <= tokens:
        return ""  # the input is the whole sequence
    if tokens > 1:
        return f"{tokens} tokens follow a cache, which DirectML reads only for one token"
    return Match("DirectML reads the cache only if the application binds past and present to one memory", sure=False)


QUIRK_CACHE = Quirk(
    id="grouped-cache",
    code="DP649",
    title="GroupQueryAttention behind a cache",
    ops=("com.microsoft::GroupQueryAttention",),
    outcome="wrong numbers",
    sources=(
        "measured on 1.24.4 and 1.30.0 by tests/benchmarks/fused_kernels.py: past keys and values that are fed are not "
        "read. On 1.24.4 under the Python for Windows with past and present bound to one memory: one token right, "
        "three wrong",
        f"{DML_OPERATORS}GroupQueryAttention.cpp",
    ),
    matches=_matches_cache,
)
