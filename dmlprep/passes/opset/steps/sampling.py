"""Lower operators that sample at computed positions (GridSample, DeformConv, RoiAlign), AffineGrid and Col2Im."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np
import onnx_ir as ir

from dmlprep.passes.opset.build import Builder, CannotLower, Steps, T

_NODES_OF_A_CORNER = 5  # at least, for each axis
_MODES = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}


class _Image:
    """The image to sample: x as [N, C, elements], its spatial sizes as floats, and the rule for positions outside.

    ``padding`` and ``align`` are GridSample's attributes padding_mode and align_corners.
    """

    def __init__(self, b: Builder, x: ir.Value, padding: str, align: bool) -> None:
        rank, dtype = b.need_rank(x), b.need_dtype(x)
        self.flat = b.op("Reshape", x, b.op("Concat", b.dim(x, 0), b.dim(x, 1), b.ints(-1), axis=0))
        self.sizes = [b.cast(b.dim(x, axis), dtype) for axis in range(2, rank)]
        self.padding, self.align = padding, align

    def border(self, b: Builder, axis: int) -> tuple[ir.Value, ir.Value]:
        """The lowest and the highest position inside the image along an axis, in elements."""
        size, (low, top) = self.sizes[axis], (0.0, 1.0) if self.align else (-0.5, 0.5)
        return b.like(low, size), b.op("Sub", size, b.like(top, size))

    def reflected(self, b: Builder, axis: int, value: ir.Value) -> ir.Value:
        """Mirror positions outside the image at its borders; positions inside are unchanged."""
        low, high = self.border(b, axis)
        outside = b.op("Or", b.op("Less", value, low), b.op("Greater", value, high))
        return b.op("Where", outside, _reflect(b, value, low, high), value)


def _clip(b: Builder, value: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
    return b.op("Max", b.op("Min", value, high), low)


def _reflect(b: Builder, value: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
    """Mirror positions into [low, high]: low + range - |(value - low) mod 2 range - range|."""
    extent = b.op("Sub", high, low)
    # An empty range (one element) reflects to itself.
    safe = b.op("Max", extent, b.like(1e-6, extent))
    period = b.op("Mul", safe, b.like(2, safe))
    offset = b.op("Sub", value, low)
    phase = b.op("Sub", offset, b.op("Mul", b.op("Floor", b.op("Div", offset, period)), period))
    return b.op("Add", low, b.op("Sub", safe, b.op("Abs", b.op("Sub", phase, safe))))


def _pixels(b: Builder, image: _Image, index: Sequence[ir.Value]) -> ir.Value:
    """Gather the elements [N, C, P] at whole positions, for positions outside by the image's padding rule.

    ``index``: for each axis, P positions [N, 1, P].
    """
    linear: ir.Value | None = None
    inside: ir.Value | None = None
    for axis, (at, size) in enumerate(zip(index, image.sizes, strict=True)):
        top = b.op("Sub", size, b.like(1, size))
        zero = b.like(0, size)
        if image.padding == "zeros":
            here = b.op("And", b.op("Not", b.op("Less", at, zero)), b.op("Not", b.op("Greater", at, top)))
            inside = here if inside is None else b.op("And", inside, here)
        elif image.padding == "reflection":
            at = image.reflected(b, axis, at)
        whole = b.cast(_clip(b, at, zero, top), T.INT64)
        whole_size = b.cast(size, T.INT64)
        linear = whole if linear is None else b.op("Add", b.op("Mul", linear, whole_size), whole)
    assert linear is not None
    where = b.op("Expand", linear, b.op("Concat", b.ints(1), b.dim(image.flat, 1), b.ints(1), axis=0))
    pixels = b.op("GatherElements", image.flat, where, axis=2)
    return pixels if inside is None else b.op("Where", inside, pixels, b.like(0, pixels))


def _sample(b: Builder, image: _Image, at: Sequence[ir.Value], mode: str) -> ir.Value:
    """Interpolate the elements [N, C, P] at fractional positions; ``mode`` is nearest, linear or cubic.

    ``at``: for each axis, P positions [N, 1, P].
    """
    if mode == "nearest":
        return _pixels(b, image, at)
    floors = [b.op("Floor", a) for a in at]
    taps: list[list[tuple[ir.Value, ir.Value]]] = []
    for whole, a in zip(floors, at, strict=True):
        part = b.op("Sub", a, whole)
        one = b.like(1, part)
        if mode == "linear":
            taps.append([(whole, b.op("Sub", one, part)), (b.op("Add", whole, one), part)])
        else:
            taps.append([(b.op("Add", whole, b.like(k - 1, part)), _cubic(b, part, k)) for k in range(4)])
    total: ir.Value | None = None
    b.expect(prod(len(tap) for tap in taps) * len(taps) * _NODES_OF_A_CORNER)
    for corner in product(*taps):
        value = _pixels(b, image, [c[0] for c in corner])
        for _, weight in corner:
            value = b.op("Mul", value, weight)
        total = value if total is None else b.op("Add", total, value)
    assert total is not None
    return total


def _cubic(b: Builder, part: ir.Value, tap: int) -> ir.Value:
    """Weight of neighbour ``tap`` (0 to 3) in a cubic interpolation with a = -0.75.

    ``part``: the distance of the position from neighbour 1, from 0 to 1.
    """
    a = -0.75
    inner, outer = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    one, two = b.like(1, part), b.like(2, part)
    far = (b.op("Add", part, one), part, b.op("Sub", one, part), b.op("Sub", two, part))[tap]
    factors = inner if tap in (1, 2) else outer
    result = b.like(factors[0], part)
    for factor in factors[1:]:
        result = b.op("Add", b.op("Mul", result, far), b.like(factor, part))
    return result


def grid_sample_20(b: Builder) -> list[ir.Value | None] | None:
    """Rename the modes linear and cubic to bilinear and bicubic; for volumes, write gathers of the samples."""
    if b.need_rank(b.need(0)) != 4:
        return grid_sample_16(b)
    b.set_attr(mode=_MODES[b.attr("mode", "linear")])
    return None


def grid_sample_16(b: Builder) -> list[ir.Value | None]:
    """Write GridSample as gathers of the neighbours of every position, times their weights."""
    x, grid = b.need(0), b.need(1)
    axes = b.need_rank(x) - 2
    mode = {v: k for k, v in _MODES.items()}.get(b.attr("mode"), b.attr("mode", "linear"))
    image = _Image(b, x, b.attr("padding_mode", "zeros"), bool(b.attr("align_corners", 0)))
    grid = b.cast(grid, b.need_dtype(x))
    at = []
    for axis, size in enumerate(image.sizes):
        g = b.op("Gather", grid, b.scalar(axes - 1 - axis), axis=-1)  # the innermost dimension comes first
        g = b.op("Reshape", g, b.op("Concat", b.dim(grid, 0), b.ints(1, -1), axis=0))
        half, one = b.like(0.5, size), b.like(1, size)
        if image.align:
            position = b.op("Mul", b.op("Mul", b.op("Add", g, one), half), b.op("Sub", size, one))
        else:
            position = b.op("Mul", b.op("Sub", b.op("Mul", b.op("Add", g, one), size), one), half)
        if mode == "nearest":
            position = b.op("Round", position)
        low, high = image.border(b, axis)
        outside = b.op("Or", b.op("Less", position, low), b.op("Greater", position, high))
        # ONNX Runtime (and PyTorch) do not clamp the positions of cubic samples, only their neighbours.
        if mode == "cubic":
            pass
        elif image.padding == "border":
            position = b.op("Where", outside, _clip(b, position, b.like(0, size), b.op("Sub", size, one)), position)
        elif image.padding == "reflection":
            position = b.op("Where", outside, _reflect(b, position, low, high), position)
        at.append(position)
    samples = _sample(b, image, at, mode)
    dims = [b.dim(x, 0), b.dim(x, 1), *[b.dim(grid, i + 1) for i in range(axes)]]
    return [b.op("Reshape", samples, b.op("Concat", *dims, axis=0))]


def deform_conv_19(b: Builder) -> list[ir.Value | None]:
    """Write bilinear samples at the shifted positions of the kernel, times the mask, times the weights.

    Raises:
        CannotLower: shapes are not fixed, or there are not two spatial dimensions.
    """
    x, weights, offset, bias, mask = b.need(0), b.need(1), b.need(2), b.input(3), b.input(4)
    shapes = [b.values.static_shape(v) for v in (x, weights, offset)]
    if shapes[0] is None or shapes[1] is None or shapes[2] is None:
        raise CannotLower("its shapes are not fixed: pin the free dimensions of the model", in_function=True)
    (batch, channels, *_), (filters, per_group, *kernel), (_, _, *outs) = shapes[0], shapes[1], shapes[2]
    if len(kernel) != 2:
        raise CannotLower("dmlprep rewrites it only with two spatial dimensions")
    strides, dilations = (b.attr(name) or [1, 1] for name in ("strides", "dilations"))
    pads = b.attr("pads") or [0] * 4
    offset_groups, group = b.attr("offset_group", 1), b.attr("group", 1)
    taps, points, dtype = prod(kernel), prod(outs), b.need_dtype(x)
    folded = b.op("Reshape", x, b.ints(batch * offset_groups, channels // offset_groups, *shapes[0][2:]))
    image = _Image(b, folded, "zeros", True)
    moves = b.op("Reshape", offset, b.ints(batch * offset_groups, taps, 2, points))
    at = []
    b.room((2, taps, points), np.dtype(np.float64).itemsize, "the places of its kernel")
    for axis in range(2):
        in_kernel, in_output = (np.indices(sizes)[axis].reshape(-1) for sizes in (kernel, outs))
        base = in_output[None, :] * strides[axis] - pads[axis] + in_kernel[:, None] * dilations[axis]
        moved = b.op("Gather", moves, b.scalar(axis), axis=2)
        position = b.op("Add", moved, b.typed(base[None].astype(np.float64), dtype))
        at.append(b.op("Reshape", position, b.ints(batch * offset_groups, 1, taps * points)))
    sampled = _sample(b, image, at, "linear")
    if mask is not None:
        sampled = b.op("Mul", sampled, b.op("Reshape", mask, b.ints(batch * offset_groups, 1, taps * points)))
    columns = b.op("Reshape", sampled, b.ints(batch, group, per_group * taps, points))
    table = b.op("Reshape", weights, b.ints(1, group, filters // group, per_group * taps))
    y = b.op("Reshape", b.op("MatMul", table, columns), b.ints(batch, filters, *outs))
    if bias is not None:
        y = b.op("Add", y, b.op("Reshape", bias, b.ints(1, -1, 1, 1)))
    return [y]


def col2im_18(b: Builder) -> list[ir.Value | None]:
    """Write a transposed convolution with a constant kernel that puts each element of a block in its place.

    Raises:
        CannotLower: the image or block shape is not constant.
    """
    x = b.need(0)
    image = [int(i) for i in b.need_constant(b.need(1), "its image shape")]
    block = [int(i) for i in b.need_constant(b.need(2), "its block shape")]
    rank, taps = len(image), prod(block)
    strides, dilations = (b.attr(name) or [1] * rank for name in ("strides", "dilations"))
    pads = b.attr("pads") or [0] * (2 * rank)
    rooms = [image[i] + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1 for i in range(rank)]
    counts = [room // stride + 1 for room, stride in zip(rooms, strides, strict=True)]
    extra = [room % stride for room, stride in zip(rooms, strides, strict=True)]
    b.room((taps, taps), np.dtype(np.float64).itemsize, "a kernel that puts each row in its place")
    kernel = b.typed(np.eye(taps).reshape(taps, 1, *block), b.need_dtype(x))
    images = b.op("Reshape", x, b.ints(-1, taps, *counts))
    window = {"kernel_shape": block, "strides": strides, "dilations": dilations, "pads": pads, "output_padding": extra}
    y = b.op("ConvTranspose", images, kernel, **window)
    channels = b.op("Div", b.dim(x, 1), b.ints(taps))
    return [b.op("Reshape", y, b.op("Concat", b.dim(x, 0), channels, b.ints(*image), axis=0))]


def affine_grid_20(b: Builder) -> list[ir.Value | None]:
    """Write the positions along each axis, from Range of scalars, as a matrix, and multiply it by theta.

    ONNX's function body cannot be used: it passes tensors of one element to Range, which ONNX Runtime does not load.

    Raises:
        CannotLower: the number of sizes is unknown.
    """
    theta, size = b.need(0), b.need(1)
    elements = b.values.static_shape(size)
    if elements not in ([4], [5]):
        raise CannotLower(
            f"the number of sizes in {size.name!r} is unknown: pin the free dimensions of the model", in_function=True
        )
    dtype, axes = b.need_dtype(theta), elements[0] - 2
    work = dtype if dtype == T.DOUBLE else T.FLOAT
    spatial = b.op("Slice", size, b.ints(2), b.ints(elements[0]), b.ints(0))
    full = b.op("Concat", spatial, b.ints(1), axis=0)
    columns: list[ir.Value] = []
    for axis in range(axes):
        count = b.op("Gather", size, b.scalar(axis + 2), axis=0)
        index = b.cast(b.op("Range", b.scalar(0), count, b.scalar(1)), work)
        line = _normalized(b, index, b.cast(count, work), align=bool(b.attr("align_corners", 0)))
        shaped = b.op("Reshape", line, b.ints(*(-1 if i == axis else 1 for i in range(axes)), 1))
        columns.insert(0, b.op("Expand", shaped, full))
    columns.append(b.op("Expand", b.typed(np.ones(1), work), full))
    base = b.op("Reshape", b.op("Concat", *columns, axis=-1), b.ints(-1, axes + 1))
    grid = b.op("MatMul", base, b.op("Transpose", b.cast(theta, work), perm=[0, 2, 1]))
    batch = b.op("Slice", size, b.ints(0), b.ints(1), b.ints(0))
    return [b.cast(b.op("Reshape", grid, b.op("Concat", batch, spatial, b.ints(axes), axis=0)), dtype)]


def _normalized(b: Builder, index: ir.Value, count: ir.Value, *, align: bool) -> ir.Value:
    """Map the indices of ``count`` elements to positions from -1 to 1.

    -1 and 1 are the outer edges of the first and the last element; with ``align``, their middles.
    """
    one, two = b.like(1, index), b.like(2, index)
    if not align:
        return b.op("Sub", b.op("Div", b.op("Add", b.op("Mul", index, two), one), count), one)
    # Count from the last element, so that a single element is at 1, as in ONNX Runtime's own kernel.
    last = b.op("Sub", count, one)
    back = b.op("Mul", b.op("Sub", last, index), two)
    return b.op("Sub", one, b.op("Div", back, b.op("Max", last, one)))


def roi_align_16(b: Builder) -> list[ir.Value | None] | None:
    """Drop the mode output_half_pixel, the only one of older versions; other modes cannot be lowered.

    Raises:
        CannotLower: the node has another mode.
    """
    if b.attr("coordinate_transformation_mode", "half_pixel") != "output_half_pixel":
        raise CannotLower("older versions of the operator shift its regions by half a pixel")
    b.set_attr(coordinate_transformation_mode=None)
    return None


STEPS: Steps = {
    ("GridSample", 20): grid_sample_20,
    ("GridSample", 16): grid_sample_16,
    ("DeformConv", 19): deform_conv_19,
    ("AffineGrid", 20): affine_grid_20,
    ("Col2Im", 18): col2im_18,
    ("RoiAlign", 16): roi_align_16,
}
