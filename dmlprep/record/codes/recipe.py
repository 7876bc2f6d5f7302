"""Codes DP9xx: recipes."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP901": Code("unknown recipe field", "error", "remove it, or use the field suggested"),
}
