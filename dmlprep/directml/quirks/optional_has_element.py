"""OptionalHasElement crashes: ONNX Runtime's CPU kernel writes its answer into memory of the GPU."""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.declaring import Edit, Match, NodeFacts, Quirk


def _matches(node: NodeFacts) -> Match:
    """Optional types run on the CPU. ONNX Runtime may fold the node if it has no input."""
    return Match("it crashes") if node.input(0) is not None else Match("no input", sure=False)


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the constant: tensors and sequences always have an element."""
    value = facts.input(0)
    if value is not None and not value.type:
        return "the type of its input is not known"
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
