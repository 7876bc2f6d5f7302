"""Codes DP4xx: precision."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP401": Code("constant beyond the FP16 range", "warning", "keep the nodes that read it in FP32"),
    "DP402": Code("constant flushed to zero in FP16", "warning", "keep the nodes that read it in FP32"),
    "DP403": Code(
        "model cannot be converted to FP16", "error", "keep the named node in FP32, or choose another engine"
    ),
    "DP404": Code(
        "FP16 misses the tolerance",
        "error",
        "raise the tolerance or the number of trials, or leave the model in FP32",
    ),
    "DP405": Code("node stays in FP32 after a search", "note"),
    "DP408": Code("constant rescaled by a power of two", "note"),
    "DP407": Code(
        "the FP16 emulation is out of tolerance",
        "error",
        'set step.fp16.islands = "auto", or keep the nodes that lose digits in FP32 (keep_nodes, keep_operators)',
    ),
    "DP409": Code(
        "most of the model stays in FP32", "warning", "raise the tolerance, or use an FP32 recipe such as @static-fp32"
    ),
    "DP415": Code("a weight that cannot be rounded to few bits", "error", "keep its node, or mend the weight"),
    "DP416": Code("weights rounded to few bits", "note"),
    "DP417": Code("weight not rounded to few bits", "note"),
    "DP418": Code("weight not rounded to few bits after a search", "note"),
    "DP419": Code(
        "weights of few bits miss the tolerance", "error", "raise the tolerance, or take 8 bits or smaller blocks"
    ),
    "DP406": Code(
        "the model stays in FP32", "warning", "raise the tolerance, or use an FP32 recipe such as @static-fp32"
    ),
}
