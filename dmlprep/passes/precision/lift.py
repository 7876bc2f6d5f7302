"""Turn an FP16 model into an FP32 model, so that a search can leave a part of it in FP32."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes
from dmlprep.passes.precision.fp16 import cast_tensor
from dmlprep.passes.precision.types import FROM_ATTRIBUTE, solve_types

_HALF, _SINGLE = ir.DataType.FLOAT16, ir.DataType.FLOAT


def has_half(model: Model) -> bool:
    """Return whether a value of the model is FP16."""
    return ir.TensorType(_HALF) in solve_types(model.ir).values()


def lift(model: Model) -> set[str]:
    """Make every FP16 tensor of ``model`` FP32, in place, without loss.

    Returns the names of the inputs and outputs that were FP16.
    """
    half = [v for v, kind in solve_types(model.ir).items() if kind == ir.TensorType(_HALF)]
    for value in half:
        if value.const_value is not None:
            value.const_value = cast_tensor(value.const_value, _SINGLE, name=value.name)
        value.type = ir.TensorType(_SINGLE)
    for node in nodes(model.ir):
        name = "output_dtype" if node.op_type == "DequantizeLinear" else FROM_ATTRIBUTE.get(node.op_type, ("", None))[0]
        if name and node.attributes.get_int(name, 0) == _HALF.value:
            node.attributes[name] = ir.AttrInt64(name, _SINGLE.value)
        for one in list(node.attributes.values()):
            if one.type == ir.AttributeType.TENSOR and one.as_tensor().dtype == _HALF:
                node.attributes[one.name] = ir.AttrTensor(one.name, cast_tensor(one.as_tensor(), _SINGLE))
    return {v.name or "" for v in half if v.is_graph_input() or v.is_graph_output()}
