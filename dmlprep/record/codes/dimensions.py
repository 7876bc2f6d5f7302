"""Codes DP2xx: dimensions, pins and denotations."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP201": Code(
        "dimension stays dynamic", "warning", "pin the dimension, or accept that DirectML does not fuse this node"
    ),
    "DP202": Code(
        "size contradicts the graph",
        "error",
        "pin the size that the graph was exported with, or export it with this dimension dynamic",
    ),
    "DP203": Code("unknown dimension name", "error", "use one of the names listed"),
    "DP204": Code("contradictory sizes", "error", "give each dimension one size"),
    "DP206": Code("declared output shape corrected", "note"),
    "DP205": Code("free dimension", "note", "set it when the session is made"),
}
