"""What a model of one edge is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, Any]

MICROSOFT = ', "com.microsoft" : 1'
MINE = ', "my" : 1'

_RNG = np.random.default_rng(3)


def normal(*shape: int, k: float = 1.0) -> Array:
    """Normal numbers of standard deviation ``k``."""
    return (_RNG.standard_normal(shape) * k).astype(np.float32)


def ints(*values: int) -> Array:
    """A vector of int64."""
    return np.array(values, np.int64)


W = {"w": normal(16, 16, k=0.25)}


def text(
    body: str,
    ends: str = "(float[2,16] x) => (float[2,16] y)",
    opset: int = 17,
    ir: int = 8,
    more: str = "",
    functions: str = "",
) -> str:
    """A model in ONNX text."""
    return f'<ir_version: {ir}, opset_import: ["" : {opset}{more}]>\ng {ends} {{\n{body}\n}}\n{functions}'


@dataclass(frozen=True)
class Edge:
    """A model in ONNX text, its weights, and its inputs where they are not seeded ones."""

    text: str
    weights: dict[str, Any] = field(default_factory=dict)
    feeds: dict[str, Any] | None = None

    def proto(self) -> onnx.ModelProto:
        """The model."""
        proto = onnx.parser.parse_model(self.text)
        for name, array in self.weights.items():
            proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return proto
