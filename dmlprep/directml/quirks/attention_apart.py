"""MultiHeadAttention whose keys and values have separate heads: [batch, heads, tokens, size].

The decoder of an encoder-decoder model, such as Whisper, reads keys and values of the encoder this way. DirectML fails
to create a session for the model, or fails at the first run if sizes are free.
"""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk

_PLACES = {1: "keys", 2: "values"}
_BIAS = 3


def _apart(node: NodeFacts) -> list[int]:
    """The positions of the inputs with four dimensions, out of keys (1) and values (2)."""
    return [place for place in _PLACES if node.rank(place) == 4]


def _matches(node: NodeFacts) -> str:
    names = [_PLACES[place] for place in _apart(node)]
    return f"its {' and '.join(names)} have four dimensions, with an axis for the heads" if names else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Join the heads, [batch, tokens, heads x size], before the node."""
    if _apart(facts) != list(_PLACES):
        return "only its keys or only its values have four dimensions"
    if facts.input(_BIAS) is not None:
        return "its bias covers keys and values, which needs keys and values of three dimensions"
    for place in _PLACES:
        value = edit.input(place)
        batch, heads, tokens, size = facts.required(place).dims
        width = heads * size if isinstance(heads, int) and isinstance(size, int) else None
        shape = (batch, tokens, heads, size)
        turned = edit.before("Transpose", [value], {"perm": [0, 2, 1, 3]}, like=value, shape=shape)
        target = edit.integers([0, 0, width or -1], "shape")
        edit.set_input(place, edit.before("Reshape", [turned, target], like=value, shape=(batch, tokens, width)))
    return ""


QUIRK = Quirk(
    id="attention-apart",
    code="DP660",
    title="MultiHeadAttention with keys and values of four dimensions",
    ops=("com.microsoft::MultiHeadAttention",),
    outcome="create fails",
    sources=(
        "measured by tests/benchmarks/quirks_by_release.py, in FP32 and FP16: 80070057 with keys "
        "and values of four dimensions; right with three",
    ),
    matches=_matches,
    rewrite=_rewrite,
)
