"""Outputs that go back in as inputs at the next step: the states of recurrent models."""

from __future__ import annotations

import re

import onnx_ir as ir

from dmlprep.graph.model import Model

_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16})

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")

_MARKS = frozenset(
    {"in", "out", "input", "output", "n", "new", "next", "prev", "previous", "last", "initial", "final", "updated"}
)
"""Words that tell a state before a step from one after it."""

_ENDS = ("out", "new", "in", "n", "i", "o")
"""The same, written without a border: h and hn, r1i and r1o."""


def carried_states(model: Model) -> dict[str, str]:
    """Of each output that the next step reads, the input that it becomes: hn and h, stateN and state.

    The two have a floating type in common, shapes that fit, and a name but for what says before or after. A state goes
    beside a result, and beside what is new at each step: a model of one output, or of one input, has none.
    """
    inputs, outputs = model.ir.graph.inputs, model.ir.graph.outputs
    if len(inputs) < 2 or len(outputs) < 2:
        return {}
    stems = {name: v for v in inputs for name in _stems(v.name or "")}
    found: dict[str, str] = {}
    for output in outputs:
        for stem in _stems(output.name or ""):
            before = stems.get(stem)
            if before is not None and before.dtype in _FLOATS and _alike(before, output):
                found[output.name or ""] = before.name or ""
    return found


def _stems(name: str) -> list[str]:
    """A name without the words that tell before from after; empty where nothing else is left."""
    words = [word.lower() for word in _WORDS.findall(name)]
    plain = "".join(word for word in words if word not in _MARKS)
    cut = next((plain.removesuffix(end) for end in _ENDS if plain.endswith(end) and plain != end), plain)
    return [stem for stem in dict.fromkeys((plain, cut)) if stem]


def _alike(one: ir.Value, other: ir.Value) -> bool:
    """Whether one may be given where the other is read, as far as types and shapes are known."""
    if one.shape is None or other.shape is None:
        return one.dtype == other.dtype
    pairs = zip(one.shape.dims, other.shape.dims, strict=False)
    fits = all(a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)
    return one.dtype == other.dtype and 0 < len(one.shape) == len(other.shape) and fits
