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
    "DP012": Code(
        "onnx's own code crashes on the model",
        "error",
        "export the model without the operator that it crashes at; the fault is onnx's: report it there",
    ),
    "DP013": Code(
        "onnx's own code needs too much time or memory for the model",
        "error",
        "look for a size or a constant that is far too large; to allow more: dmlprep --limit onnx_seconds=60 "
        "--limit onnx_bytes=4294967296 COMMAND",
    ),
    "DP016": Code("beyond the bounds of what is read", "error", "export a smaller model"),
    "DP017": Code("no outputs", "error", "name the values that it is to give as outputs, and export it again"),
    "DP014": Code(
        "too much would be made of the model",
        "error",
        "raise the limit if you trust the model: dmlprep --limit NAME=N COMMAND, or [limits] in a recipe",
    ),
    "DP015": Code("an input was changed while it was used", "error", "run again when nothing writes to it any more"),
    "DP018": Code("a shape noted inside the graph contradicts its nodes", "note"),
    "DP003": Code("the model is invalid", "error", "export the model again; onnx.checker names the fault"),
}
