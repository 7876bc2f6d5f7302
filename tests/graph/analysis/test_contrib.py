"""Shapes of ONNX Runtime's own operators are those that ONNX Runtime gives."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from dmlprep.graph.analysis.shapes import Inference

MS = "com.microsoft"


def f(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


CASES = {
    "Gelu": ([f(2, 3)], {}, 1),
    "FastGelu": ([f(2, 3), f(3)], {}, 1),
    "QuickGelu": ([f(2, 3)], {}, 1),
    "BiasGelu": ([f(2, 3), f(3)], {}, 1),
    "SkipLayerNormalization": ([f(2, 3, 4), f(2, 3, 4), f(4), f(4)], {}, 4),
    "SkipSimplifiedLayerNormalization": ([f(2, 3, 4), f(2, 3, 4), f(4)], {}, 4),
    "EmbedLayerNormalization": (
        [np.ones((2, 3), np.int32), np.zeros((2, 3), np.int32), f(9, 4), f(5, 4), f(2, 4), f(4), f(4)],
        {},
        2,
    ),
    "Attention": ([f(2, 3, 8), f(8, 24), f(24)], {"num_heads": 2}, 1),
    "MultiHeadAttention": ([f(2, 3, 8), f(2, 5, 8), f(2, 5, 12)], {"num_heads": 2}, 1),
    "FusedMatMul": ([f(2, 4, 3), f(2, 5, 4)], {"transA": 1, "transB": 1}, 1),
    "FusedMatMul of matrices": ([f(4, 3), f(5, 4)], {"transA": 1, "transB": 1}, 1),
    "FusedConv": ([f(1, 2, 8, 8), f(3, 2, 3, 3), f(3)], {"activation": "Relu", "strides": [2, 2]}, 1),
    "FusedGemm": ([f(2, 4), f(5, 4), f(5)], {"activation": "Relu", "transB": 1}, 1),
    "MatMulIntegerToFloat": (
        [np.ones((2, 4), np.uint8), np.ones((4, 5), np.uint8), np.float32(1), np.float32(1)],
        {},
        1,
    ),
    "DynamicQuantizeMatMul": ([f(2, 4), np.ones((4, 5), np.uint8), np.float32(1)], {}, 1),
    "QLinearAdd": (
        [
            *(np.ones((2, 1, 4), np.uint8), np.float32(1), np.uint8(0)),
            *(np.ones((3, 4), np.uint8), np.float32(1), np.uint8(0)),
            *(np.float32(1), np.uint8(0)),
        ],
        {},
        1,
    ),
    "QuantizeLinear": ([f(2, 4), np.float32(1), np.int8(0)], {}, 1),
    "DequantizeLinear": ([np.ones((2, 4), np.int8), np.float32(1), np.int8(0)], {}, 1),
    "MatMulNBits": (
        [f(2, 3, 32), np.zeros((8, 1, 16), np.uint8), f(8)],
        {"K": 32, "N": 8, "bits": 4, "block_size": 32},
        1,
    ),
}


@pytest.mark.parametrize("op_type", list(CASES))
def test_as_onnxruntime(op_type):
    arrays, attributes, outputs = CASES[op_type]
    names = [f"i{i}" for i in range(len(arrays))]
    node = helper.make_node(
        op_type.partition(" ")[0], names, [f"o{i}" for i in range(outputs)], domain=MS, **attributes
    )
    first = helper.make_tensor_value_info("i0", helper.np_dtype_to_tensor_dtype(arrays[0].dtype), arrays[0].shape)
    graph = helper.make_graph(
        [node],
        "g",
        [first],
        [onnx.ValueInfoProto(name=name) for name in (node.output[0], node.output[-1])[:outputs]],
        [numpy_helper.from_array(np.asarray(a), n) for a, n in zip(arrays[1:], names[1:], strict=True)],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(None, {"i0": arrays[0]})
    graph_ir = ir.from_proto(model)
    known = Inference.of(graph_ir)
    for value, result in zip(graph_ir.graph.outputs, results, strict=True):
        assert known.dims(value) == result.shape
        assert value not in known.assumed
        assert known.types[value].tensor_type.elem_type == helper.np_dtype_to_tensor_dtype(result.dtype)
