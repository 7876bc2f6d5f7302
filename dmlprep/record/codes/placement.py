"""Codes DP5xx: placement."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

_FUSE = "nothing is wrong: the node runs on DirectML in a launch of its own; the page says more"

ROWS: dict[str, Code] = {
    "DP500": Code("runs on DirectML", "note"),
    "DP501": Code(
        "no DirectML kernel of this operator version",
        "warning",
        "lower the opset (dmlprep prepare with opset auto), or choose a newer target",
    ),
    "DP502": Code(
        "no DirectML kernel for this operator", "warning", "export the model without it, or accept the copies"
    ),
    "DP503": Code(
        "no DirectML kernel for this data type", "warning", "compute in float32 or float16; cast around the node"
    ),
    "DP504": Code("DirectML refuses this form of the operator", "warning", "use the attributes that the page names"),
    "DP505": Code("data type that DirectML lacks", "warning", "export with tensors of float32, float16 or integers"),
    "DP506": Code(
        "shape arithmetic stays on the CPU", "note", "pin the dimensions and simplify: it becomes a constant"
    ),
    "DP507": Code("no kernel in ONNX Runtime", "error", "export without this operator, or lower the opset"),
    "DP508": Code("optimizer makes an operator that DirectML lacks", "warning", "run the fix-quirks pass"),
    "DP509": Code("operator is a function", "note"),
    "DP511": Code("not fused: a shape is not static", "note", "pin the free dimensions"),
    "DP512": Code("not fused: an input read on the CPU is not constant", "note", "pin the dimensions and simplify"),
    "DP513": Code("not fused: the graph holds control flow", "note", "export without If, Loop and Scan"),
    "DP514": Code("not fused: no fused graph takes this operator", "note", _FUSE),
    "DP515": Code("not fused: a tensor is empty", "note", _FUSE),
    "DP516": Code("not fused: number of inputs", "note", "chain the operator in pairs"),
    "DP520": Code("opset above what the release loads", "error", "lower the opset, or choose a newer target"),
    "DP521": Code("IR version above what the release loads", "error", "dmlprep prepare writes one that it loads"),
    "DP522": Code("tensors cross between CPU and GPU", "note"),
    "DP523": Code(
        "prediction and session differ", "error", "please report this; dmlprep check --format json has the nodes"
    ),
    "DP524": Code("time of each operator", "note"),
    "DP530": Code(
        "needs more memory than the device has",
        "error",
        "take smaller sizes or a smaller batch, FP16, or weights of 4 bits",
    ),
    "DP531": Code("memory is not known", "warning", "pin the free dimensions"),
}
