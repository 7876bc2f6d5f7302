"""Choose the built-in recipe that suits a model, by its operators, inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import nodes

_RECURRENT = {"LSTM", "GRU", "RNN"}

_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64)


def suggest_for(model: Model) -> tuple[str, str]:
    """Return the name of the built-in recipe that suits a model, and the reason as a sentence."""
    graph = model.ir.graph
    inputs = [value for value in graph.inputs if value not in graph.initializers.values()]
    operators = {node.op_type for node in nodes(model.ir)}
    ranks = {value.name or "": len(value.shape) for value in inputs if value.shape is not None}
    if half := next((value.name for value in graph.initializers.values() if value.dtype == ir.DataType.FLOAT16), None):
        return "@static-fp32", f"it has FP16 weights already ({half})"
    if operators & {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "MatMulInteger", "ConvInteger"}:
        return "@static-fp32", "it is quantized"
    if maps := [value for value in inputs if ranks.get(value.name or "") == 4]:
        latent = {"timestep", "timesteps", "encoder_hidden_states"} & set(ranks)
        if latent:
            return "@diffusion-fp16", f"it has an input {min(latent)}"
        pictures = [value for value in maps if _is_picture(value)]
        outputs = [value for value in graph.outputs if value.shape is not None]
        enlarges = operators & {"Resize", "DepthToSpace", "ConvTranspose"} and len(outputs) == len(pictures) == 1
        if enlarges and _is_picture(outputs[0]) and _sides(outputs[0]) != _sides(pictures[0]):
            return "@super-resolution-fp16", "its inputs are pictures, its outputs pictures of another size"
        if pictures and operators & {"Conv", "MatMul", "Gemm"} and not _tokens(inputs):
            return "@vision-fp16", f"its input {pictures[0].name} is a picture"
        if "Conv" in operators and len(maps) == len(inputs):
            return "@vision-fp16", f"it has Conv, and its input {maps[0].name} has four dimensions"
    tokens = _tokens(inputs)
    if (recurrent := operators & _RECURRENT) and ("Conv" in operators or not tokens):
        return "@speech-fp16", f"it has {min(recurrent)}"
    if tokens:
        return "@transformer-fp16", f"its input {tokens[0]} is a sequence of tokens"
    return "@static-fp32", "no other recipe clearly fits"


def _is_picture(value: ir.Value) -> bool:
    """Return True if a value may be a picture: it has four dimensions, and 1, 3, 4 or unknown channels."""
    channels = [dim for dim in (value.shape or ())[1::2] if isinstance(dim, int)]
    return value.shape is not None and len(value.shape) == 4 and (len(channels) < 2 or bool({1, 3, 4} & {*channels}))


def _sides(value: ir.Value) -> list[object]:
    """Return height and width of a picture ``[batch, channels, height, width]``, as numbers or names.

    A free size without a name is an object that equals no other size.
    """
    return [dim if isinstance(dim, int) else dim.value or object() for dim in (value.shape or ())[2:]]


def _tokens(inputs: Sequence[ir.Value]) -> list[str]:
    return [v.name or "" for v in inputs if v.dtype in _INTEGERS and v.shape is not None and len(v.shape) == 2]
