"""Codes DP0xx: the model file."""

from __future__ import annotations

from dmlprep.record.codes.row import Code

__all__ = ["ROWS"]

ROWS: dict[str, Code] = {
    "DP001": Code("not an ONNX model", "error", "pass a file that an ONNX exporter wrote"),
    "DP002": Code("external data refused", "error", "keep the data files beside the model and inside its folder"),
    "DP004": Code("part of the model cannot be kept", "error", "export the inference model in dense form"),
    "DP005": Code(
        "data file name that Windows does not allow",
        "warning",
        "dmlprep prepare writes the model with one data file of its own",
    ),
    "DP006": Code("nodes sorted", "note"),
    "DP007": Code("version of an operator domain taken", "note"),
    "DP008": Code("name, type or shape missing in the file", "note"),
    "DP009": Code("file of an old IR version", "note"),
    "DP010": Code("operator of ONNX Runtime in ONNX's domain", "note"),
    "DP011": Code("random numbers in each run", "note", "export the model for inference (model.eval() in PyTorch)"),
    "DP003": Code("the model is invalid", "error", "export the model again; onnx.checker names the fault"),
}
