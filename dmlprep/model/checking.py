"""onnx's checker and shape inference on a model without its weights.

Large initializers stand as graph inputs meanwhile, so that a 5 GB model is checked in megabytes, past protobuf's 2 GiB.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx import shape_inference
from onnx.checker import ValidationError

from dmlprep.model import protos
from dmlprep.model.frozen import freeze, stub_index

__all__ = ["check", "infer_shapes", "weightless"]


def weightless(model: ir.Model, threshold: int = 1024) -> onnx.ModelProto:
    """The model with every initializer of more than ``threshold`` bytes turned into an input of the main graph."""
    proto = freeze(model, threshold, attributes=False).proto
    # Before IR 4 every initializer is an input as well; a weight that is taken out would leave a plain input, as here.
    known = {i.name for i in proto.graph.input}
    for graph in protos.graphs(proto):
        kept = []
        for tensor in graph.initializer:
            if stub_index(tensor) is None:
                kept.append(tensor)
                continue
            if tensor.name not in known:
                known.add(tensor.name)
                proto.graph.input.append(
                    onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
                )
        if len(kept) != len(graph.initializer):
            kept = [onnx.TensorProto.FromString(t.SerializeToString()) for t in kept]
            del graph.initializer[:]
            graph.initializer.extend(kept)
    return proto


def check(model: ir.Model, *, full: bool = True) -> str:
    """Run onnx's checker (with strict shape inference where ``full``).

    Returns:
        the first line of what is wrong, empty when the model is valid.
    """
    try:
        onnx.checker.check_model(weightless(model), full_check=full)
    except (ValidationError, shape_inference.InferenceError, ValueError, RuntimeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return " ".join(lines[:3]) or type(error).__name__
    return ""


def infer_shapes(model: ir.Model, *, strict: bool = False) -> onnx.ModelProto:
    """onnx's shape inference with data propagation, through subgraphs and functions.

    Returns:
        the weightless model with ``value_info`` for every value that could be inferred; ``model`` is not changed.

    Raises:
        onnx.shape_inference.InferenceError: with ``strict``, where types or shapes contradict each other.
    """
    return shape_inference.infer_shapes(weightless(model), check_type=strict, strict_mode=strict, data_prop=True)
