"""onnx's version converter: used to raise old models, on the graph without its weights."""

from __future__ import annotations

import onnx
import onnx.version_converter

from dmlprep.errors import ModelRefused

__all__ = ["convert"]


def convert(proto: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """``proto`` at opset ``version``.

    Raises:
        ModelRefused: the converter has no way for one of the operators.
    """
    try:
        converted: onnx.ModelProto = onnx.version_converter.convert_version(proto, version)
    except (RuntimeError, ValueError, IndexError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ModelRefused(
            f"onnx's converter cannot bring the model to opset {version}: {lines[-1] if lines else error}",
            code="DP104",
            fix="export the model again with a newer opset",
        ) from error
    return converted
