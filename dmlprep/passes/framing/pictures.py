"""Write the nodes from the app's pictures to the model's input. They compute in FP32.

A resize between fixed sizes is a product with a constant matrix for each side. That is exact up to rounding, and the
rounding follows Pillow: after each side. ONNX's Resize has no weights like these.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.passes.framing.building import Nodes, dtype_of, sizes
from dmlprep.passes.framing.frame import Picture
from dmlprep.passes.framing.weights import Weights, nearest_indices, resize_weights
from dmlprep.portable.arrays import Array

GRAY = (19595, 38470, 7471)
"""Pillow's weights of red, green and blue for gray, in units of 1/65536 (``Convert.c``, L24)."""


def prepared(nodes: Nodes, picture: Picture, app_input: ir.Value) -> ir.Value:
    """Create the nodes from the app's input to the input that the model reads, and return the latter.

    Raises:
        ModelRefused: DP014, the matrices are too large.
    """
    value = nodes.cast(app_input, ir.DataType.FLOAT)
    if picture.layout == "nhwc":
        value = nodes.transpose(value, [0, 3, 1, 2])
    value = _coloured(nodes, picture, value)
    value = _resized(nodes, picture, value)
    value = _padded(nodes, picture, value)
    value = _scaled(nodes, picture, value)
    value = nodes.cast(value, dtype_of(picture.model_type))
    return nodes.transpose(value, [0, 2, 3, 1]) if picture.model_layout == "nhwc" else value


def _coloured(nodes: Nodes, picture: Picture, value: ir.Value) -> ir.Value:
    """Convert pictures [N, channels, height, width] to the model's channels, and return them."""
    batch, channels, height, width = sizes(value)
    ours, wanted = picture.colour.rstrip("a"), picture.model_colour
    if ours == wanted:
        return nodes.part(value, 1, 0, 1 if wanted == "gray" else 3)
    if ours == "gray":
        return nodes.op("Tile", [value, nodes.numbers([1, 3, 1, 1], "three", np.int64)], [batch, 3, height, width])
    if wanted != "gray":
        order = nodes.numbers([ours.index(c) for c in wanted], "order", np.int64)
        return nodes.op("Gather", [value, order], [batch, 3, height, width], None, {"axis": 1})
    # Whole numbers below 2^24: FP32 adds them without loss.
    share = np.array([GRAY["rgb".index(c)] for c in ours] + [0] * (channels - 3)).reshape(1, channels, 1, 1)
    total = nodes.sum(nodes.with_number("Mul", value, share, "share"), 1)
    if not picture.bytes:
        return nodes.with_number("Mul", total, 2.0**-16, "unit")
    half = nodes.with_number("Add", total, 2.0**15, "half")
    return nodes.alike("Floor", nodes.with_number("Mul", half, 2.0**-16, "unit"))


def _resized(nodes: Nodes, picture: Picture, value: ir.Value) -> ir.Value:
    """Resize pictures, first the width and then the height, as Pillow does, and cut off what the model does not see."""
    unit = 1
    for axis in (3, 2):
        side = axis - 2
        source, target = picture.size[side], picture.resized[side]
        # Leave out the part of the picture that the model does not see.
        first = max(0, -picture.offset[side])
        last = min(target, picture.model_size[side] - picture.offset[side])
        if source == target:
            value = nodes.part(value, axis, first, last)
        elif picture.mode.endswith("-nearest"):
            shape = sizes(value)
            shape[axis] = last - first
            indices = nodes.numbers(nearest_indices(picture.mode, source, target)[first:last], "nearest", np.int64)
            value = nodes.op("Gather", [value, indices], shape, None, {"axis": axis})
        else:
            nodes.room((last - first, source), 4, "the matrix of a resize")
            weights = resize_weights(picture.mode, source, target, range(first, last), whole=picture.bytes)
            value, unit = _side(nodes, picture, value, axis, weights, unit)
    return _whole_quotient(nodes, value, unit) if unit > 1 else value


def _side(
    nodes: Nodes, picture: Picture, value: ir.Value, axis: int, weights: Weights, unit: int
) -> tuple[ir.Value, int]:
    """Resize along one axis, and return the result, and the divisor by which it must still be divided.

    For bytes, the sums are split so that none needs more digits than FP32 has.

    Args:
        unit: the divisor that the result of the first axis still needs.
    """
    library, name = picture.mode.split("-")
    if not picture.bytes or name == "area":
        return _product(nodes, value, axis, weights.matrix), unit * weights.unit if picture.bytes else 1
    if library == "opencv":
        matrix = weights.matrix / weights.unit
        both = picture.size[0] != picture.resized[0] and picture.size[1] != picture.resized[1]
        if both and axis == 3:
            return _product(nodes, value, axis, matrix), 1  # not rounded: multiples of 2^-11
        if not both:
            return _whole(nodes, _product(nodes, value, axis, matrix)), 1
        floor = nodes.alike("Floor", value)
        rest = nodes.alike("Sub", value, floor)
        return _whole_sum(nodes, _product(nodes, floor, axis, matrix), _product(nodes, rest, axis, matrix)), 1
    high = np.round(weights.matrix / _HIGH) * _HIGH
    low = weights.matrix - high
    large = _product(nodes, value, axis, high / weights.unit)
    if not low.any():
        return _whole(nodes, large), 1
    return _whole_sum(nodes, large, _product(nodes, value, axis, low / weights.unit)), 1


_HIGH = 1 << 7
"""Pillow's weights, whole numbers of 2^-22, are split into multiples of this number and a rest. Sums of 255 times such
multiples are exact in FP32, and so are sums of 255 times the rests."""


def _product(nodes: Nodes, value: ir.Value, axis: int, matrix: Array) -> ir.Value:
    """Multiply pictures along ``axis`` (2: rows, 3: columns) by a constant matrix, and return the result."""
    shape = sizes(value)
    shape[axis] = len(matrix)
    if axis == 3:
        return nodes.op("MatMul", [value, nodes.numbers(matrix.T, "columns")], shape)
    return nodes.op("MatMul", [nodes.numbers(matrix[None, None], "rows"), value], shape)


def _whole(nodes: Nodes, value: ir.Value) -> ir.Value:
    """Round to the nearest whole number, halves up, clip to 0 to 255, and return the result."""
    return nodes.levels(nodes.alike("Floor", nodes.with_number("Add", value, 0.5, "half")))


def _whole_sum(nodes: Nodes, large: ir.Value, small: ir.Value) -> ir.Value:
    """Round ``large`` + ``small`` to the nearest whole number of 0 to 255, without the sum, which FP32 cannot hold.

    The fraction of ``large`` is added to ``small`` instead.
    """
    half = nodes.with_number("Add", large, 0.5, "half")
    floor = nodes.alike("Floor", half)
    rest = nodes.alike("Add", nodes.alike("Sub", half, floor), small)
    return nodes.levels(nodes.alike("Add", floor, nodes.alike("Floor", rest)))


def _whole_quotient(nodes: Nodes, value: ir.Value, unit: int) -> ir.Value:
    """Divide whole numbers by ``unit``, and round to the nearest whole number of 0 to 255, halves up.

    The result does not depend on how a device rounds.
    """
    floor = nodes.alike("Floor", nodes.with_number("Mul", value, 1 / unit, "share"))
    rest = nodes.alike("Sub", value, nodes.with_number("Mul", floor, unit, "unit"))
    part = nodes.with_number("Mul", rest, 1 / unit, "share")
    # These are multiples of 1 / unit: a quarter of that is more than the error of the product.
    up = nodes.alike("Floor", nodes.with_number("Add", part, 0.5 + 0.25 / unit, "half"))
    return nodes.levels(nodes.alike("Add", floor, up))


def _padded(nodes: Nodes, picture: Picture, value: ir.Value) -> ir.Value:
    """Add the border of a letterboxed picture; return the pictures themselves if they have the model's size."""
    batch, channels, *inner = sizes(value)
    before = [max(0, o) for o in picture.offset]
    after = [m - b - i for m, b, i in zip(picture.model_size, before, inner, strict=True)]
    if not any(before + after):
        return value
    pads = nodes.numbers([0, 0, *before, 0, 0, *after], "around", np.int64)
    fill = nodes.numbers(picture.fill * picture.white / 255, "fill")
    return nodes.op("Pad", [value, pads, fill], [batch, channels, *picture.model_size])


def _scaled(nodes: Nodes, picture: Picture, value: ir.Value) -> ir.Value:
    """Compute ``(value / white * scale - mean) / deviation`` as one product and one sum, and return the result.

    For a model that reads bytes, return whole numbers of 0 to 255 instead.
    """
    if picture.model_type == "uint8":
        if picture.bytes:
            return value
        return _whole(nodes, nodes.with_number("Mul", value, 255 / picture.white, "factor"))
    mean, deviation = (np.asarray(n, np.float64).reshape(1, -1, 1, 1) for n in (picture.mean, picture.deviation))
    factor, shift = picture.scale / picture.white / deviation, -mean / deviation
    if np.any(factor != 1):
        value = nodes.with_number("Mul", value, factor, "factor")
    return nodes.with_number("Add", value, shift, "shift") if np.any(shift != 0) else value
