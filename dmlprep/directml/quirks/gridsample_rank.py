"""GridSample of data that does not have four dimensions (volumes). No equal form is known."""

from __future__ import annotations

from dmlprep.directml.quirks.quirk import MEASURED, ORT_SOURCE, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _matches(node: NodeFacts) -> str:
    x = node.input(0)
    return f"data of rank {x.rank}" if x is not None and x.rank is not None and x.rank != 4 else ""


QUIRK = Quirk(
    id="gridsample-rank",
    code="DP616",
    title="GridSample of volumes",
    ops=("GridSample",),
    outcome="run fails",
    sources=(
        MEASURED,
        ORT_SOURCE + "onnxruntime/core/providers/dml/DmlExecutionProvider/src/Operators/DmlGridSample.h",
    ),
    matches=_matches,
)
