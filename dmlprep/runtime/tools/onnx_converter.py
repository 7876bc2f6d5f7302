"""Raise the opset of old models with onnx's version converter, on the graph without its weights."""

from __future__ import annotations

import onnx

from dmlprep.core.errors import ModelRefused
from dmlprep.process.onnx_worker import calls
from dmlprep.process.onnx_worker.door import OnnxError


def convert(proto: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """Return a new model: ``proto`` at opset ``version``.

    Raises:
        ModelRefused: the converter cannot convert one of the operators.
        ToolFailed: the converter crashes on the model, or needs more than its limits.
        CheckNotRun: its process does not start.
    """
    try:
        return calls.convert_version(proto, version)
    except OnnxError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        what = f"onnx's converter cannot convert the model to opset {version}: {lines[-1] if lines else error}"
        raise ModelRefused(what, code="DP104", fix="export the model again with a newer opset") from error
