"""Small models for the sessions."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    **graph: object,
) -> Path:
    """Save a model of opset 17."""
    proto = helper.make_graph(nodes, "g", inputs, outputs, **graph)
    onnx.save(helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def add_relu(tmp_path: Path) -> Path:
    """r = Relu(x + y), both [N, 3]; z = x + y is an output as well."""
    info = helper.make_tensor_value_info
    return save(
        tmp_path / "add relu é.onnx",
        [helper.make_node("Add", ["x", "y"], ["z"], name="add"), helper.make_node("Relu", ["z"], ["r"], name="relu")],
        [info("x", TensorProto.FLOAT, ["N", 3]), info("y", TensorProto.FLOAT, ["N", 3])],
        [info("z", TensorProto.FLOAT, ["N", 3]), info("r", TensorProto.FLOAT, ["N", 3])],
    )
