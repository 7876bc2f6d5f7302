"""A model that never comes to its end."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser

__all__ = ["endless"]

_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[4] x) => (float[4] y) <int64 n = {%d}, bool true = {1}> {
    y = Loop <body = b (int64 i, bool go, float[4] v) => (bool on, float[4] w) { on = Identity (go) w = Tanh (v) }> (
        n, true, x)
}"""


def endless(path: Path, rounds: int = 2**62) -> Path:
    """Write a model with a Loop of so many rounds."""
    onnx.save(onnx.parser.parse_model(_TEXT % rounds), path)
    return path
