"""Codes DP3xx: simplify, fuse and frame."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP301": Code("simplify was undone", "warning", "nothing: the next steps get the model as it was before"),
    "DP302": Code("nodes fused", "note"),
    "DP303": Code("a fused form that does not fit", "note", "pin the dimensions; the page lists what each form needs"),
    "DP304": Code("an input or output is the app's own", "note"),
    "DP305": Code("a frame does not fit the model", "error", "mend the table that is named"),
    "DP306": Code("DirectML does not take a part of a frame", "error", "leave this part to the app"),
}
