"""QAttention and QLinearSigmoid without a zero point: DirectML crashes, or makes no session. Zeros are written."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk

_ATTENTION: Mapping[int, int] = {6: 0, 7: 1}
_SIGMOID: Mapping[int, int] = {2: 0, 4: 0}
"""Positions of zero points, and of the inputs that have their types."""


def _places(node: NodeFacts) -> Mapping[int, int]:
    return _ATTENTION if node.op == "QAttention" else _SIGMOID


def _matches(node: NodeFacts) -> str:
    lacks = [index for index in _places(node) if node.input(index) is None]
    return "a zero point is left out" if lacks else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the zeros that the operator takes by default."""
    for index, of in _places(facts).items():
        typed = facts.input(of)
        if typed is None or typed.dtype is None:
            return f"the type of its input {of} is not known"
        if facts.input(index) is None:
            edit.set_input(index, edit.constant(np.array(0, typed.numpy_type), "zero"))
    return ""


_SOURCE = "measured on 1.24.4 and 1.30.0 by tests/benchmarks/contrib_forms.py: right with both zero points"
_TITLE = "QAttention or QLinearSigmoid without a zero point"

ATTENTION = Quirk(
    id="qattention-zero-point",
    code="DP679",
    title=_TITLE,
    ops=("com.microsoft::QAttention",),
    outcome="crash",
    sources=(_SOURCE,),
    matches=_matches,
    rewrite=_rewrite,
)
SIGMOID = Quirk(
    id="qsigmoid-zero-point",
    code="DP679",
    title=_TITLE,
    ops=("com.microsoft::QLinearSigmoid",),
    outcome="create fails",
    sources=(_SOURCE,),
    matches=_matches,
    rewrite=_rewrite,
)
