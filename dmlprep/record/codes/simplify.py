"""Codes DP3xx: simplify."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP301": Code("simplify was undone", "warning", "nothing: the next steps get the model as it was before"),
}
