"""Codes DP3xx: simplify and fuse."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP301": Code("simplify was undone", "warning", "nothing: the next steps get the model as it was before"),
    "DP302": Code("nodes fused", "note"),
    "DP303": Code("a fused form that does not fit", "note", "pin the dimensions; the page lists what each form needs"),
}
