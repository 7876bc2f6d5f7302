"""Codes DP8xx: runtime and environment."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP801": Code("two ONNX Runtime packages in one environment", "error", "uninstall both, then install one"),
}
