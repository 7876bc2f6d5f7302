"""Codes DP6xx of the fix-quirks pass. Each quirk in ``dmlprep.quirks`` declares its own code."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP640": Code("quirk rewritten", "note"),
    "DP641": Code("quirk left as it is", "warning", "pin the dimensions and simplify, or export another form"),
}
