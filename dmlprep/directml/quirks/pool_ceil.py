"""Pooling with ceil_mode: a kernel that is too long, a window that starts in the padding, an average with padding."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk


class _Axis(NamedTuple):
    """One spatial axis: size of the input, size of a window with its dilation (``reach``), stride, and both pads."""

    size: int
    reach: int
    stride: int
    before: int
    after: int

    @property
    def padded(self) -> int:
        """The size of the input with both pads."""
        return self.size + self.before + self.after

    @property
    def ceiled(self) -> int:
        """The number of windows, including those that start in the padding."""
        return ceil((self.padded - self.reach) / self.stride) + 1

    @property
    def out(self) -> int:
        """The size of the output with ``ceil_mode``."""
        return self.ceiled - ((self.ceiled - 1) * self.stride >= self.size + self.before)


def _geometry(node: NodeFacts) -> list[_Axis] | None:
    """The spatial axes; ``None`` if the input's spatial sizes are unknown, or with ``auto_pad``."""
    x = node.input(0)
    kernel = list(node.attribute("kernel_shape", []))
    if x is None or x.shape is None or not kernel or node.attribute("auto_pad", "NOTSET") != "NOTSET":
        return None
    spatial = [size for size in x.shape[2:] if isinstance(size, int)]
    count = len(kernel)
    if not len(spatial) == len(x.shape) - 2 == count:
        return None
    strides = node.attribute("strides", [1] * count)
    dilations = node.attribute("dilations", [1] * count)
    pads = node.attribute("pads", [0] * 2 * count)
    reach = [(kernel[i] - 1) * dilations[i] + 1 for i in range(count)]
    return [_Axis(spatial[i], reach[i], strides[i], pads[i], pads[i + count]) for i in range(count)]


def _too_long(node: NodeFacts) -> str:
    axes = _geometry(node) if node.attribute("ceil_mode", 0) else None
    if axes is None or any(axis.out < 1 for axis in axes):
        return ""  # ONNX Runtime refuses a negative size
    long = next((index for index, axis in enumerate(axes, 2) if axis.reach > axis.padded), 0)
    return f"ceil_mode: the kernel of axis {long} is longer than the padded input" if long else ""


def _starts_in_padding(node: NodeFacts) -> str:
    axes = _geometry(node) if node.attribute("ceil_mode", 0) else None
    for index, axis in enumerate(axes or (), 2):
        if axis.out != axis.ceiled:
            return f"ceil_mode: the last window of axis {index} starts in the padding"
    return ""


def _counts_padding(node: NodeFacts) -> str:
    if not node.attribute("ceil_mode", 0) or not node.attribute("count_include_pad", 0):
        return ""
    axes = _geometry(node)
    if axes is not None and all((a.out - 1) * a.stride + a.reach <= a.padded for a in axes):
        return ""  # no window reaches beyond the padding: ceil and floor are the same
    if _too_long(node):
        return ""  # pool-kernel comes first
    return "ceil_mode with count_include_pad"


def _rewrite_kernel(facts: NodeFacts, edit: Edit) -> str:
    """Write a kernel as long as the padded input: ONNX Runtime and PyTorch ignore the elements beyond."""
    axes = _geometry(facts) or []
    kernel, dilations = list(facts.attribute("kernel_shape")), facts.attribute("dilations", [1] * len(axes))
    for index, (axis, dilation) in enumerate(zip(axes, dilations, strict=True)):
        if axis.reach > axis.padded:
            kernel[index], rest = (axis.padded - 1) // dilation + 1, (axis.padded - 1) % dilation
            if rest or max(axis.before, axis.after) >= kernel[index]:
                return "its dilations allow no kernel as long as its padded input"
    edit.set("kernel_shape", kernel)
    edit.correct_shape(edit.output, [*facts.required().dims[:2], *(axis.out for axis in axes)])
    return ""


def _rewrite_pool(facts: NodeFacts, edit: Edit) -> str:
    """Write padding at the end that gives the same windows without ceil_mode."""
    if facts.op == "AveragePool" and facts.attribute("count_include_pad", 0):
        return (
            ""
            if facts.since >= 19 and not _rewrite_average(facts, edit)
            else "it counts its padding (count_include_pad)"
        )
    pads = _floor_pads(facts)
    if isinstance(pads, str):
        return pads
    edit.drop("ceil_mode")
    edit.set("pads", pads)
    _note_sizes(facts, edit)
    return ""


def _note_sizes(facts: NodeFacts, edit: Edit) -> None:
    """Correct the shape of the output: onnx infers one element too many for windows that start in the padding."""
    edit.correct_shape(edit.output, [*facts.required().dims[:2], *(axis.out for axis in _geometry(facts) or ())])


def _floor_pads(facts: NodeFacts) -> list[int] | str:
    axes = _geometry(facts)
    if axes is None:
        return "the sizes of its input are unknown"
    end = [max(0, (a.out - 1) * a.stride + a.reach - a.size - a.before) for a in axes]
    if any(after >= kernel for after, kernel in zip(end, facts.attribute("kernel_shape"), strict=True)):
        return "the padding would be as wide as the kernel"
    return [*(a.before for a in axes), *end]


def _rewrite_average(facts: NodeFacts, edit: Edit) -> str:
    """Average without counting padding, and multiply by the share of data in each window.

    From opset 19 on, padding counts in the divisor, and elements beyond the padding do not. A Pad before the pooling
    does not work: ONNX Runtime 1.20 fuses it into the AveragePool, which then counts differently.
    """
    axes = _geometry(facts)
    if axes is None:
        return "the sizes of its input are unknown, or it has auto_pad"
    x = facts.required()
    if x.type not in ("float", "float16"):
        return "its input is neither FP32 nor FP16"
    pads = _floor_pads(facts)
    if isinstance(pads, str):
        return pads
    edit.room([a.out for a in axes], np.dtype(np.float64).itemsize, "the share of data in each of its windows")
    shares = [_data_part(axis, kernel) for axis, kernel in zip(axes, facts.attribute("kernel_shape"), strict=True)]
    parts = np.ones([1] * len(axes))
    for share in np.ix_(*shares):
        parts = parts * share
    if not parts.all():
        return "one of its windows contains no data"
    edit.drop("ceil_mode", "count_include_pad")
    edit.set("pads", pads)
    _note_sizes(facts, edit)
    if (parts == 1).all():
        return ""
    old = edit.output
    factor = edit.constant(parts.astype(x.numpy_type), "data")
    average = edit.before(facts.op, list(edit.node.inputs), edit.node.attributes, dtype=old.dtype)
    return edit.become(edit.before("Mul", [average, factor], dtype=old.dtype))


def _data_part(axis: _Axis, kernel: int) -> NDArray[np.float64]:
    """For each window of an axis, the number of its elements in the data, divided by those in data or padding."""
    dilation = (axis.reach - 1) // (kernel - 1) if kernel > 1 else 1
    first = np.arange(axis.out) * axis.stride - axis.before

    def below(end: int) -> NDArray[np.int64]:
        """The number of elements of each window at positions before ``end``."""
        return np.clip(-((first - end) // dilation), 0, kernel)

    return np.asarray((below(axis.size) - below(0)) / below(axis.size + axis.after), np.float64)


POOL_KERNEL = Quirk(
    id="pool-kernel",
    code="DP626",
    title="pooling window beyond the input",
    ops=("MaxPool", "AveragePool", "LpPool"),
    outcome="create fails",
    matches=_too_long,
    rewrite=_rewrite_kernel,
)
POOL_CEIL_EARLY = Quirk(
    id="pool-ceil",
    code="DP626",
    title=POOL_KERNEL.title,
    ops=POOL_KERNEL.ops,
    outcome="create fails",
    last="1.20",
    sources=("measured on onnxruntime-directml 1.20.1 with DirectML 1.15.2",),
    matches=_starts_in_padding,
    rewrite=_rewrite_pool,
)
POOL_CEIL = replace(POOL_CEIL_EARLY, outcome="wrong numbers", first="1.21", last=None, sources=(MEASURED,))

AVERAGEPOOL_CEIL = Quirk(
    id="averagepool-ceil",
    code="DP627",
    title="AveragePool with ceil_mode that counts padding",
    ops=("AveragePool",),
    outcome="wrong numbers",
    first="1.17",
    matches=_counts_padding,
    rewrite=_rewrite_average,
)
