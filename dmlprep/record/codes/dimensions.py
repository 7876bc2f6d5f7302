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
    "DP207": Code("value of an input pinned", "note"),
    "DP209": Code("value of an input decides a branch", "note", "pin the value, where it is always the same"),
    "DP208": Code("pinned value does not fit its input", "error", "give a value of the input's type and shape"),
    "DP210": Code("a size of 0 leaves every output empty", "error", "give a size of 1 or more"),
    "DP205": Code("free dimension", "note", "set it when the session is made"),
}
