"""From what a model gives to what the app wants, in ONNX operators. All of it is computed in FP32."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.passes.framing.building import Nodes, dtype_of, sizes
from dmlprep.passes.framing.frame import Result


def finished(nodes: Nodes, result: Result, given: ir.Value) -> list[ir.Value]:
    """Write the nodes that make of an output what the app wants, in the order of ``result.made``."""
    value = nodes.cast(given, ir.DataType.FLOAT)
    if result.activation == "softmax":
        value = softmax(nodes, value, result.axis)
    elif result.activation == "sigmoid":
        value = nodes.alike("Sigmoid", value)
    shape = sizes(value)
    if result.take == "argmax":
        del shape[result.axis]
        indices = nodes.op("ArgMax", [value], shape, ir.DataType.INT64, {"axis": result.axis, "keepdims": 0})
        return [nodes.cast(indices, dtype_of(result.index_type))]
    if result.take == "topk":
        values, indices = nodes.top(value, result.top, result.axis)
        return [values, nodes.cast(indices, dtype_of(result.index_type))]
    if result.take == "picture":
        return [_picture(nodes, result, value)]
    return [value if value is not given else nodes.op("Identity", [value], shape)]


def softmax(nodes: Nodes, value: ir.Value, axis: int) -> ir.Value:
    """Softmax over one dimension; before opset 13 only the last one is by itself."""
    last = len(sizes(value)) - 1
    order = list(range(last + 1))
    if nodes.opset < 13:
        order[axis], order[last] = order[last], order[axis]
    turned = order != sorted(order)
    value = nodes.transpose(value, order) if turned else value
    value = nodes.op("Softmax", [value], sizes(value), None, {"axis": last if turned or nodes.opset < 13 else axis})
    return nodes.transpose(value, order) if turned else value


def _picture(nodes: Nodes, result: Result, value: ir.Value) -> ir.Value:
    """Bytes of the app's layout and colours: ``(value * deviation + mean) / scale`` of 255."""
    if result.model_layout == "nhwc":
        value = nodes.transpose(value, [0, 3, 1, 2])
    level = 255 / result.scale
    deviation, mean = (np.array(n).reshape(1, -1, 1, 1) * level for n in (result.deviation, result.mean))
    value = nodes.with_number("Mul", value, deviation, "deviation")
    # Half a level more: the next step down is the nearest level.
    value = nodes.with_number("Add", value, mean + 0.5, "mean")
    value = nodes.levels(nodes.alike("Floor", value))
    if result.colour != result.model_colour:
        if result.model_colour == "gray":
            batch, _, *side = sizes(value)
            value = nodes.op("Tile", [value, nodes.numbers([1, 3, 1, 1], "three", np.int64)], [batch, 3, *side])
        else:
            order = nodes.numbers([2, 1, 0], "order", np.int64)
            value = nodes.op("Gather", [value, order], sizes(value), None, {"axis": 1})
    if result.layout == "nhwc":
        value = nodes.transpose(value, [0, 2, 3, 1])
    return nodes.cast(value, ir.DataType.UINT8)
