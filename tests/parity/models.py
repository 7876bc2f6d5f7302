"""Small models for the tests of this room, from ONNX text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from dmlprep.graph.model import Model


def parse(text: str, path: Path, ir_version: int = 8, opset: int = 17) -> Path:
    """Write the model of a graph in ONNX text to ``path``."""
    head = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n'
    onnx.save(onnx.parser.parse_model(head + text), path)
    return path


def opened(text: str, tmp_path: Path) -> Model:
    """The model of a graph in ONNX text, opened."""
    return Model.open(parse(text, tmp_path / "parsed.onnx"))


def perturbed(source: Path, target: Path, weight: str, factor: float = 1.05) -> list[str]:
    """Write ``source`` with one weight made wrong; returns the names of the nodes that read it."""
    model = onnx.load(source)
    tensor = next(t for t in model.graph.initializer if t.name == weight)
    values = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array((values * factor).astype(values.dtype), weight))
    onnx.save(model, target)
    return [n.name for n in model.graph.node if weight in n.input]


def large_weights(source: Path) -> list[str]:
    """Names of the FP32 weights of at least 8 elements that a node of the main graph reads."""
    model = onnx.load(source)
    read = {name for node in model.graph.node for name in node.input}
    return [t.name for t in model.graph.initializer if t.data_type == 1 and np.prod(t.dims) >= 8 and t.name in read]
