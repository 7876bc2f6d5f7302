"""Write the nodes from the model's outputs to the app's results. They compute in FP32, and all sizes are fixed.

A detector's raw boxes become boxes that an app can draw. DirectML has no kernel for NonMaxSuppression, whose output has
a variable number of rows. Here the best ``candidates`` are compared with each other, all with all, and the output has a
fixed number of boxes.

The comparison runs in rounds, for all boxes together. The first round drops each box that a better one overlaps. The
second restores the boxes whose better ones were dropped, and so on. The longest chain of better boxes needs one round
for each link. The number of rounds is even: a box that is still undecided then stays, so no box is lost.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.passes.framing.building import Nodes, dtype_of, sizes
from dmlprep.passes.framing.frame import Detect, Result

_FLOAT = ir.DataType.FLOAT


def finished(nodes: Nodes, result: Result, output: ir.Value) -> list[ir.Value]:
    """Create the nodes from an output to the app's results, and return the results, ordered as ``result.outputs``."""
    value = nodes.cast(output, ir.DataType.FLOAT)
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
    return [value if value is not output else nodes.op("Identity", [value], shape)]


def softmax(nodes: Nodes, value: ir.Value, axis: int) -> ir.Value:
    """Create a Softmax over one dimension, and return its result.

    Before opset 13, Softmax normalizes all dimensions from its axis on, so transposes move the dimension to the end.
    """
    last = len(sizes(value)) - 1
    order = list(range(last + 1))
    if nodes.opset < 13:
        order[axis], order[last] = order[last], order[axis]
    turned = order != sorted(order)
    value = nodes.transpose(value, order) if turned else value
    value = nodes.op("Softmax", [value], sizes(value), None, {"axis": last if turned or nodes.opset < 13 else axis})
    return nodes.transpose(value, order) if turned else value


def _picture(nodes: Nodes, result: Result, value: ir.Value) -> ir.Value:
    """Create the nodes for a picture of bytes, with the app's layout and colours, and return it.

    A byte is 255 times ``(value * deviation + mean) / scale``, rounded and clipped to 0 to 255.
    """
    if result.model_layout == "nhwc":
        value = nodes.transpose(value, [0, 3, 1, 2])
    level = 255 / result.scale
    deviation, mean = (np.array(n).reshape(1, -1, 1, 1) * level for n in (result.deviation, result.mean))
    value = nodes.with_number("Mul", value, deviation, "deviation")
    # Half a level more, so that the later rounding down gives the nearest level.
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


def detected(nodes: Nodes, detect: Detect, outputs: list[ir.Value]) -> list[ir.Value]:
    """Create the nodes that compute the app's boxes from a detector's raw outputs (``detect.raw_outputs``).

    Returns boxes [N, count, 4], scores [N, count], classes [N, count], and the number of boxes [N].
    """
    table = detect.table
    boxes, scores = _split(nodes, detect, [nodes.cast(value, _FLOAT) for value in outputs])
    batch, _, _ = sizes(scores)
    best = nodes.largest(scores, 2)
    kinds = nodes.op("ArgMax", [scores], sizes(best), ir.DataType.INT64, {"axis": 2, "keepdims": 0})
    score, order = nodes.top(best, table.candidates)
    boxes = _chosen(nodes, _corners(nodes, detect, boxes), order)
    kind = nodes.op("GatherElements", [nodes.cast(kinds, _FLOAT), order], sizes(score), None, {"axis": 1})
    keep = _over(nodes, score, table.score)
    if table.suppress:
        keep = _suppressed(nodes, detect, boxes, kind, keep)
    # Dropped boxes get a score below all others, so the best of the remaining ones come first.
    best = nodes.alike("Mul", score, keep)
    gone = nodes.op("Sub", [nodes.numbers(1.0, "number"), keep], sizes(score), _FLOAT)
    best, order = nodes.top(nodes.alike("Sub", best, gone), table.count)
    boxes = _chosen(nodes, boxes, order)
    kind = nodes.op("GatherElements", [kind, order], [batch, table.count], None, {"axis": 1})
    there = _over(nodes, best, -0.5)
    wide = nodes.reshape(there, [batch, table.count, 1])
    boxes = nodes.alike("Mul", _in_the_picture(nodes, detect, boxes), wide)
    best = nodes.alike("Mul", best, there)
    lifted = nodes.alike("Mul", nodes.with_number("Add", kind, 1.0, "one"), there)
    number = nodes.reshape(nodes.sum(keep, 1), [batch])
    number = nodes.with_number("Min", number, float(table.count), "count")
    return [
        boxes,
        best,
        nodes.cast(nodes.with_number("Sub", lifted, 1.0, "one"), ir.DataType.INT32),
        nodes.cast(number, ir.DataType.INT32),
    ]


def _split(nodes: Nodes, detect: Detect, outputs: list[ir.Value]) -> tuple[ir.Value, ir.Value]:
    """Create the nodes that separate raw outputs into boxes [N, boxes, 4] and scores [N, boxes, classes].

    The activation is applied to all classes and to the objectness. Then the background class is cut off, and the
    objectness multiplies the scores.
    """
    table = detect.table
    if table.raw:
        value = outputs[0] if table.raw_rows else nodes.transpose(outputs[0], [0, 2, 1])
        boxes = nodes.part(value, 2, 0, 4)
        scores = nodes.part(value, 2, 5 if table.objectness else 4, sizes(value)[2])
        objectness = nodes.part(value, 2, 4, 5) if table.objectness else None
    else:
        (boxes, scores), objectness = outputs, None
    if table.activation == "softmax":
        scores = softmax(nodes, scores, 2)
    elif table.activation == "sigmoid":
        scores = nodes.alike("Sigmoid", scores)
        objectness = objectness and nodes.alike("Sigmoid", objectness)
    classes = sizes(scores)[2]
    first, last = table.background == "first", table.background == "last"
    scores = nodes.part(scores, 2, int(first), classes - int(last))
    return boxes, scores if objectness is None else nodes.alike("Mul", scores, objectness)


def _chosen(nodes: Nodes, boxes: ir.Value, order: ir.Value) -> ir.Value:
    """Gather the boxes at the indices ``order`` [N, count], and return them as [N, count, 4]."""
    batch, count = sizes(order)
    indices = nodes.reshape(order, [batch, count, 1])
    four = nodes.op("Tile", [indices, nodes.numbers([1, 1, 4], "four", np.int64)], [batch, count, 4])
    return nodes.op("GatherElements", [boxes, four], [batch, count, 4], None, {"axis": 1})


def _corners(nodes: Nodes, detect: Detect, boxes: ir.Value) -> ir.Value:
    """Convert boxes to left, top, right and bottom in pixels of the model's picture, and return them."""
    table = detect.table
    if table.unit == "share":
        height, width = detect.model_size
        boxes = nodes.with_number("Mul", boxes, [width, height, width, height], "pixels")
    if table.corners == "xyxy":
        return boxes
    place, size = nodes.part(boxes, 2, 0, 2), nodes.part(boxes, 2, 2, 4)
    if table.corners == "cxcywh":
        place = nodes.alike("Sub", place, nodes.with_number("Mul", size, 0.5, "half"))
    return nodes.op("Concat", [place, nodes.alike("Add", place, size)], sizes(boxes), None, {"axis": 2})


def _over(nodes: Nodes, value: ir.Value, bound: float) -> ir.Value:
    """Create nodes whose result is 1 where a value is above a bound, and 0 elsewhere; return the result."""
    return nodes.cast(nodes.alike("Greater", value, nodes.numbers(bound, "number"), dtype=ir.DataType.BOOL), _FLOAT)


def _suppressed(nodes: Nodes, detect: Detect, boxes: ir.Value, kind: ir.Value, valid: ir.Value) -> ir.Value:
    """Create the nodes that suppress overlapping boxes; return 1 for boxes that stay and 0 for others, [N, boxes].

    Args:
        boxes: left, top, right and bottom of boxes in the order of their scores, best first.
        kind: the class of each box.
        valid: 1 for boxes whose score is high enough, 0 for boxes that count as dropped.
    """
    table = detect.table
    batch, count = sizes(valid)
    square = [batch, count, count]

    def both(op: str, value: ir.Value) -> ir.Value:
        beside = [nodes.reshape(value, [batch, count, 1]), nodes.reshape(value, [batch, 1, count])]
        return nodes.op(op, beside, square)

    x_min, y_min, x_max, y_max = (nodes.reshape(nodes.part(boxes, 2, n, n + 1), [batch, count]) for n in range(4))
    area = nodes.alike("Mul", nodes.alike("Sub", x_max, x_min), nodes.alike("Sub", y_max, y_min))
    spans = []
    for low, high in ((x_min, x_max), (y_min, y_max)):
        spans.append(nodes.with_number("Max", nodes.alike("Sub", both("Min", high), both("Max", low)), 0.0, "none"))
    common = nodes.alike("Mul", *spans)
    bound = nodes.with_number("Mul", nodes.alike("Sub", both("Add", area), common), table.overlap, "overlap")
    over = nodes.alike("Greater", common, bound, dtype=ir.DataType.BOOL)
    # [better, worse]: boxes are in the order of their scores.
    blocks = nodes.with_number("Mul", nodes.cast(over, _FLOAT), np.triu(np.ones((count, count)), 1), "better")
    if table.per_class:
        apart = nodes.alike("Abs", both("Sub", kind))
        same = nodes.alike("Less", apart, nodes.numbers(0.5, "number"), dtype=ir.DataType.BOOL)
        blocks = nodes.alike("Mul", blocks, nodes.cast(same, _FLOAT))
    keep = valid
    for _ in range(table.rounds):
        by = nodes.alike("Mul", blocks, nodes.reshape(keep, [batch, count, 1]))
        keep = nodes.with_number("Max", nodes.alike("Sub", valid, nodes.largest(by, 1)), 0.0, "none")
    return keep


def _in_the_picture(nodes: Nodes, detect: Detect, boxes: ir.Value) -> ir.Value:
    """Convert boxes from pixels of the model's picture to pixels of the app's picture, clip them to it, return them."""
    ratios = [size / resized for size, resized in zip(detect.size, detect.resized, strict=True)]
    (y_offset, x_offset), (height, width) = detect.offset, detect.size
    if any(detect.offset):
        boxes = nodes.with_number("Sub", boxes, [x_offset, y_offset, x_offset, y_offset], "offset")
    boxes = nodes.with_number("Mul", boxes, [ratios[1], ratios[0], ratios[1], ratios[0]], "ratio")
    boxes = nodes.with_number("Max", boxes, 0.0, "none")
    return nodes.with_number("Min", boxes, [width, height, width, height], "edge")
