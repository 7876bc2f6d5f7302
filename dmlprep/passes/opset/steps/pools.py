"""Lower pooling operators: ceil_mode of opset 22, and dilations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.passes.opset.build import Builder, CannotLower, Steps
from dmlprep.passes.opset.steps.types import drop_defaults


class _Window:
    """Kernel, strides, pads and dilations of a pooling node, one number for each spatial dimension."""

    def __init__(self, b: Builder) -> None:
        self.kernel: list[int] = b.attr("kernel_shape")
        self.rank = len(self.kernel)
        self.strides: list[int] = b.attr("strides") or [1] * self.rank
        self.dilations: list[int] = b.attr("dilations") or [1] * self.rank
        pads: list[int] = b.attr("pads") or [0] * (2 * self.rank)
        self.begin, self.end = pads[: self.rank], pads[self.rank :]
        self.span = [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    def down(self, axis: int, size: int) -> int:
        """Output size along an axis whose input size is ``size``, rounded down."""
        return int((size + self.begin[axis] + self.end[axis] - self.span[axis]) // self.strides[axis] + 1)

    def up(self, axis: int, size: int) -> int:
        """Output size along an axis whose input size is ``size``, rounded up as before opset 22."""
        return int(-(-(size + self.begin[axis] + self.end[axis] - self.span[axis]) // self.strides[axis]) + 1)

    def out(self, axis: int, size: int) -> int:
        """Output size along an axis, rounded up as at opset 22: without a window that starts in the end padding."""
        last = self.up(axis, size) - 1
        return last if last * self.strides[axis] >= size + self.begin[axis] else last + 1


def ceil_22(b: Builder) -> list[ir.Value | None] | None:
    """Slice away the windows that start in the end padding: older versions with ceil_mode compute them, opset 22 not.

    A node without such windows stays.

    Raises:
        CannotLower: a size that decides this is unknown.
    """
    if not b.attr("ceil_mode", 0) or b.attr("auto_pad", "NOTSET") != "NOTSET":
        return None
    window = _Window(b)
    shape = b.values.dims(b.need(0))
    cut: dict[int, int] = {}
    for axis in range(window.rank):
        if window.end[axis] + window.strides[axis] <= window.span[axis]:
            continue  # the last window always starts before the end padding
        size = shape[axis + 2] if shape is not None else None
        if not isinstance(size, int):
            raise CannotLower(
                "ceil_mode rounds differently before opset 22, and the size of its input is unknown: "
                "pin the free dimensions of the model",
                in_function=True,
            )
        if window.out(axis, size) != window.up(axis, size):
            cut[axis + 2] = window.out(axis, size)
    if not cut:
        return None
    starts, ends = b.ints(*[0] * len(cut)), b.ints(*cut.values())
    pooled = b.again(*b.node.inputs, version=b.target if b.target < 22 else 21)
    return [b.op("Slice", y, starts, ends, b.ints(*cut)) if b.asked(i) else None for i, y in enumerate(pooled)]


def average_dilated_19(b: Builder) -> list[ir.Value | None] | None:
    """Write dilations as a convolution with ones for each channel, divided by the number of elements in each window.

    A node without dilations stays.

    Raises:
        CannotLower: the shape is not fixed, or the node has auto_pad.
    """
    if set(b.attr("dilations") or [1]) == {1}:
        b.set_attr(dilations=None)
        drop_defaults(b)
        return None
    total, count = _sums(b, b.need(0), include_padding=bool(b.attr("count_include_pad", 0)))
    return [b.op("Div", total, b.like(count, total))]


def lp_pool_18(b: Builder) -> list[ir.Value | None] | None:
    """Write dilations or ceil_mode as the p-th root of a convolution of abs(x)^p with ones for each channel.

    A node with neither stays.

    Raises:
        CannotLower: the shape is not fixed, or the node has auto_pad.
    """
    if set(b.attr("dilations") or [1]) == {1} and not b.attr("ceil_mode", 0):
        b.set_attr(dilations=None, ceil_mode=None)
        return None
    x, p = b.need(0), b.attr("p", 2)
    total, _ = _sums(b, b.op("Pow", b.op("Abs", x), b.like(p, x)), include_padding=True)
    return [b.op("Pow", total, b.like(1 / p, x))]


def _sums(
    b: Builder, x: ir.Value, *, include_padding: bool
) -> tuple[ir.Value, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """Write the sum over each window, [N, C, out ...]; return it with the number of elements in each window.

    The numbers are an array [1, 1, out ...]. ``include_padding``: padding counts as elements.

    Raises:
        CannotLower: the shape of ``x`` is not fixed, or the node uses auto_pad.
    """
    if b.attr("auto_pad", "NOTSET") != "NOTSET":
        raise CannotLower("dilations or ceil_mode are combined with auto_pad")
    shape = b.values.static_shape(x)
    if shape is None:
        reason = "dilations or ceil_mode need fixed shapes: pin the free dimensions of the model"
        raise CannotLower(reason, in_function=True)
    window, channels, sizes = _Window(b), shape[1], shape[2:]
    rounded = window.out if b.attr("ceil_mode", 0) else window.down
    outs = [rounded(i, size) for i, size in enumerate(sizes)]
    reach = [(o - 1) * s + span for o, s, span in zip(outs, window.strides, window.span, strict=True)]
    end = [max(0, r - size - pad) for r, size, pad in zip(reach, sizes, window.begin, strict=True)]
    b.room([channels, 1, *window.kernel], np.dtype(np.float64).itemsize, "a kernel of ones")
    b.room(outs, np.dtype(np.float64).itemsize, "the elements that each window covers")
    total = b.op(
        "Conv",
        x,
        b.typed(np.ones([channels, 1, *window.kernel]), b.need_dtype(x)),
        kernel_shape=window.kernel,
        strides=window.strides,
        dilations=window.dilations,
        pads=[*window.begin, *end],
        group=channels,
    )
    covered = np.ones([1, 1, *outs])
    for axis, size in enumerate(sizes):
        low = 0 if include_padding else window.begin[axis]
        high = window.begin[axis] + size + (window.end[axis] if include_padding else 0)
        first = np.arange(outs[axis]) * window.strides[axis]
        before = [-((first - end) // window.dilations[axis]) for end in (low, high)]
        counts = np.subtract(*(np.clip(b, 0, window.kernel[axis]) for b in reversed(before)))
        covered = covered * counts.reshape([-1 if i == axis + 2 else 1 for i in range(len(sizes) + 2)])
    return total, covered


STEPS: Steps = {
    **{(name, 22): ceil_22 for name in ("AveragePool", "MaxPool", "LpPool")},
    ("AveragePool", 19): average_dilated_19,
    ("LpPool", 18): lp_pool_18,
}
