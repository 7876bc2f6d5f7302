"""Operators of com.microsoft in forms with which DirectML creates no session, or crashes without a zero point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from dmlprep.directml.quirks.declaring import Edit, NodeFacts, Quirk

_PAST = 8


def _matches(node: NodeFacts) -> str:
    if node.op == "QAttention":
        alone = node.output(1) is not None and node.input(_PAST) is None
        return "it outputs keys and values, but has no past keys and values" if alone else ""
    kind = str(node.attribute("activation", "Softmax"))
    return f"its activation is {kind}" if kind != "Softmax" else ""


QUIRK = Quirk(
    id="contrib-refused",
    code="DP674",
    title="com.microsoft operator in a form that DirectML refuses",
    ops=("com.microsoft::QAttention", "com.microsoft::FusedMatMulActivation"),
    outcome="create fails",
    sources=("measured on 1.24.4 and 1.30.0 by tests/benchmarks/contrib_forms.py: 80070057",),
    matches=_matches,
)


_PLACES: Mapping[str, Mapping[int, int]] = {"QAttention": {6: 0, 7: 1}, "QLinearSigmoid": {2: 0, 4: 0}}
"""Operator -> position of each zero point -> position of the input that has its type."""


def _matches_zeros(node: NodeFacts) -> str:
    return "a zero point is missing" if any(node.input(index) is None for index in _PLACES[node.op]) else ""


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write the missing zero points as inputs: the operator's default, 0."""
    for index, of in _PLACES[facts.op].items():
        typed = facts.input(of)
        if typed is None or typed.dtype is None:
            return f"the type of its input {of} is unknown"
        if facts.input(index) is None:
            edit.set_input(index, edit.constant(np.array(0, typed.numpy_type), "zero"))
    return ""


def _quirk(name: str, op: str, outcome: Literal["crash", "create fails"]) -> Quirk:
    return Quirk(
        id=name,
        code="DP679",
        title="QAttention or QLinearSigmoid without a zero point",
        ops=(f"com.microsoft::{op}",),
        outcome=outcome,
        sources=("measured on 1.24.4 and 1.30.0 by tests/benchmarks/contrib_forms.py: right with both zero points",),
        matches=_matches_zeros,
        rewrite=_rewrite,
    )


ATTENTION = _quirk("qattention-zero-point", "QAttention", "crash")
SIGMOID = _quirk("qsigmoid-zero-point", "QLinearSigmoid", "create fails")
