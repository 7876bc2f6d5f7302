"""ONNX Runtime's own MatMulNBitsQuantizer, given one weight at a time: its numbers, and nothing of the model."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dmlprep.errors import ModelRefused

__all__ = ["quantize"]

Array = np.ndarray[Any, Any]


def quantize(weight: Array, bits: int, block_size: int, symmetric: bool) -> list[Array]:
    """Round a weight by MatMulNBitsQuantizer.

    Args:
        weight: [depth, columns] elements, FP32 or FP16, all of them finite.
        bits: 4 or 8.
        block_size: numbers along the depth that share a scale; it divides the depth.
        symmetric: without zero points.

    Returns:
        numbers [columns, blocks, block_size * bits / 8], scales [columns, blocks] and, unless ``symmetric``, zero
        points [columns, blocks * bits / 8], as MatMulNBits takes them.

    Raises:
        ModelRefused: DP415, the quantizer failed.
    """
    from onnxruntime.quantization import matmul_nbits_quantizer as quantizer

    kind = helper.np_dtype_to_tensor_dtype(weight.dtype)
    depth, columns = weight.shape
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        "weight",
        [helper.make_tensor_value_info("x", kind, [1, depth])],
        [helper.make_tensor_value_info("y", kind, [1, columns])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    # It tells of each product that it writes, and of those that it leaves.
    logging.getLogger(quantizer.__name__).setLevel(logging.ERROR)
    try:
        made = quantizer.MatMulNBitsQuantizer(model, bits=bits, block_size=block_size, is_symmetric=symmetric)
        made.process()
        written: onnx.ModelProto = made.model.model
        product = next(node for node in written.graph.node if node.op_type == "MatMulNBits")
        parts = {one.name: numpy_helper.to_array(one) for one in written.graph.initializer}
        numbers, scales, *zeros = (parts[name] for name in product.input[1:] if name)
    except Exception as error:  # its failures have no common base: whatever it raises is a refusal
        line = next((text.strip() for text in str(error).splitlines() if text.strip()), type(error).__name__)
        raise ModelRefused(
            f"MatMulNBitsQuantizer failed: {line}",
            code="DP415",
            fix='use engine = "own", or name the node in keep_nodes',
        ) from error
    shaped = [numbers, scales.reshape(columns, -1)]
    return shaped if symmetric else [*shaped, zeros[0].reshape(columns, -1)]
