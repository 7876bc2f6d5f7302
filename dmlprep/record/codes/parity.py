"""Codes DP7xx: parity."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP701": Code("outputs differ", "error", "run dmlprep bisect to find the first node that differs"),
    "DP702": Code("outputs are not finite", "error", "keep the nodes that overflow in FP32"),
    "DP703": Code("parity did not run", "warning", "the reason says what is missing"),
    "DP704": Code("the model does not run", "error", "run dmlprep bisect to find the node, or use smaller inputs"),
    "DP705": Code("feeds do not fit the model", "error", "give each input an array of its name, type and shape"),
    "DP706": Code("first node that differs", "error", "keep it in FP32, rewrite it, or report the one-node model"),
    "DP707": Code(
        "proved at a lower optimisation level",
        "warning",
        "also prove the file on DirectML; if the CPU must run it, keep the nodes that the finding names in FP32",
    ),
    "DP708": Code("judged by the emulation with the device's rounding", "note", "nothing has to be changed for a GPU"),
    "DP710": Code("inputs were made", "note", "give real inputs with --feeds; dmlprep feeds makes them"),
    "DP709": Code(
        "an output proves nothing on these inputs",
        "warning",
        "give inputs that prove more with --feeds",
    ),
    "DP711": Code("close to the bound on few feeds", "note", "give more feeds of your own with --feeds"),
    "DP712": Code("a file names a metric", "note", "read the file before you run what others named"),
    "DP713": Code(
        "the result does not load in ONNX Runtime",
        "error",
        "leave out the step that changed the model last, and report the model's structure",
    ),
    "DP714": Code("a verdict was kept", "note", "pass --fresh to measure again"),
}
