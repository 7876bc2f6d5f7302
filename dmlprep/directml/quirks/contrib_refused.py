"""Forms of com.microsoft operators that DirectML has a kernel for and makes no session of."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import NodeFacts, Quirk

_PAST = 8


def _matches(node: NodeFacts) -> str:
    if node.op == "QAttention":
        alone = node.output(1) is not None and node.input(_PAST) is None
        return "it gives keys and values, and has no past ones" if alone else ""
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
