"""Small models that DirectML runs in one piece only where they are prepared right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["BLOCK", "block"]

BLOCK = (
    '<ir_version: 10, opset_import: ["" : 23]> block (float[batch,8,6,6] x) => (float[batch,8,6,6] y) {'
    " [conv] c = Conv <pads = [1, 1, 1, 1], group = 8> (x, w)"
    " [rows] t = Transpose <perm = [0, 2, 3, 1]> (c)"
    " [norm] n = LayerNormalization (t, scale)"
    " [wide] f = MatMul (n, up)"
    " [gelu] g = Gelu (f)"
    " [narrow] h = MatMul (g, down)"
    " [back] b = Transpose <perm = [0, 3, 1, 2]> (h)"
    " [sum] y = Add (x, b) }"
)
"""A block of ConvNeXt as today's exporters write it: the kernels of opset 23 are not DirectML's."""


def block(folder: Path) -> Path:
    """The block with weights from a seed."""
    model = onnx.parser.parse_model(BLOCK)
    draw = np.random.default_rng(0)
    shapes = {"w": (8, 1, 3, 3), "scale": (8,), "up": (8, 32), "down": (32, 8)}
    for name, shape in shapes.items():
        values = draw.standard_normal(shape).astype(np.float32) / 4
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    path = folder / "block.onnx"
    onnx.save(model, path)
    return path
