"""Models to open and save."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

__all__ = ["mlp"]


def mlp(width: int = 64, seed: int = 0) -> onnx.ModelProto:
    """x [batch, width] -> MatMul, Add, If (whose branch holds a weight) -> y."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((width, width)).astype(np.float32)
    inner = rng.standard_normal((width, width)).astype(np.float32)
    branch = helper.make_graph(
        [helper.make_node("MatMul", ["h", "w_in"], ["t"], name="inner")],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(inner, "w_in")],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["h"], ["e"], name="same")],
        "else",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)],
    )
    graph = helper.make_graph(
        [
            helper.make_node(
                "Constant", [], ["c"], name="constant", value=numpy_helper.from_array(weight[:, :32] * 0 + 1)
            ),
            helper.make_node("MatMul", ["x", "w"], ["a"], name="matmul"),
            helper.make_node("Add", ["a", "b"], ["h"], name="add"),
            helper.make_node("ReduceSum", ["h"], ["s"], name="sum", keepdims=0),
            helper.make_node("Greater", ["s", "zero"], ["cond"], name="greater"),
            helper.make_node("If", ["cond"], ["y"], name="if", then_branch=branch, else_branch=other),
            helper.make_node("MatMul", ["y", "c"], ["z"], name="out"),
        ],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", width])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", width]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 32]),
        ],
        [
            numpy_helper.from_array(weight, "w"),
            numpy_helper.from_array(np.zeros(width, np.float32), "b"),
            numpy_helper.from_array(np.float32(0), "zero"),
        ],
    )
    graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.metadata_props.add(key="author", value="tests")
    return model


@pytest.fixture
def mlp_path(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "mlp.onnx"
    path.parent.mkdir()
    onnx.save(mlp(), path)
    return path


@pytest.fixture
def external_path(tmp_path: Path) -> Path:
    path = tmp_path / "ext" / "mlp.onnx"
    path.parent.mkdir()
    onnx.save(mlp(), path, save_as_external_data=True, location="mlp.data", size_threshold=16)
    return path
