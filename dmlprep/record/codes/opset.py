"""Codes DP1xx: opset and IR version."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP101": Code("opset changed", "note"),
    "DP102": Code("node cannot be lowered", "error", "choose a newer target, or export without this operator"),
    "DP103": Code("IR version clamped", "note"),
    "DP104": Code("model cannot be raised", "error", "export the model again with a newer opset"),
}
