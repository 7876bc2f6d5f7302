"""GridSample of data that does not have four dimensions (volumes). There is no known equal form."""

from __future__ import annotations

from dmlprep.directml.quirks.declaring import DML_PROVIDER, MEASURED, Quirk

QUIRK = Quirk(
    id="gridsample-rank",
    code="DP616",
    title="GridSample of volumes",
    ops=("GridSample",),
    outcome="run fails",
    sources=(MEASURED, DML_PROVIDER + "Operators/DmlGridSample.h"),
    matches=lambda node: f"data of rank {node.rank(0)}" if node.rank(0) not in (None, 4) else "",
)
