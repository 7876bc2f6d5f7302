"""OptionalHasElement crashes: ONNX Runtime's CPU kernel writes its answer into memory of the GPU."""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.declaring import Edit, Match, NodeFacts, Quirk


def _matches(node: NodeFacts) -> Match:
    """Match every node; the match is not sure without an input, because ONNX Runtime may fold such a node.

    A node with an optional type is not reported: it runs on the CPU, because DirectML does not support the type.
    """
    return (
        Match("it has an input, so the process crashes")
        if node.input(0) is not None
        else Match("it has no input, so ONNX Runtime might fold it", sure=False)
    )


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Replace the node by a constant: True, as tensors and sequences always have an element; False without an input."""
    value = facts.input(0)
    if value is not None and not value.type:
        return "the type of its input is unknown"
    return edit.become(edit.constant(np.array(value is not None), "known"))


QUIRK = Quirk(
    id="optional-has-element",
    code="DP612",
    title="OptionalHasElement",
    ops=("OptionalHasElement",),
    outcome="crash",
    matches=_matches,
    rewrite=_rewrite,
)
