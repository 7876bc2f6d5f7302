"""Pooling with ceil_mode: a window that starts in the padding, and an average that counts padding."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts


def _geometry(node: NodeFacts) -> list[tuple[int, int, int, int, int, int]] | None:
    """For each spatial axis: input size, effective kernel, stride, pad before, pad after, right output size of
    ``ceil_mode``; ``None`` where the input's spatial sizes are not known."""
    x = node.input(0)
    kernel = list(node.attribute("kernel_shape", []))
    if x is None or x.shape is None or not kernel or node.attribute("auto_pad", "NOTSET") != "NOTSET":
        return None
    spatial = list(x.shape[2:])
    count = len(kernel)
    strides = list(node.attribute("strides", [1] * count))
    dilations = list(node.attribute("dilations", [1] * count))
    pads = list(node.attribute("pads", [0] * 2 * count))
    rows = []
    for i, size in enumerate(spatial):
        if not isinstance(size, int) or len(spatial) != count:
            return None
        reach = (kernel[i] - 1) * dilations[i] + 1
        before, after = pads[i], pads[i + count]
        out = ceil((size + before + after - reach) / strides[i]) + 1
        if (out - 1) * strides[i] >= size + before:  # the last window would start in the padding
            out -= 1
        rows.append((size, reach, strides[i], before, after, out))
    return rows


def _starts_in_padding(node: NodeFacts) -> str:
    if not node.attribute("ceil_mode", 0):
        return ""
    rows = _geometry(node)
    if rows is None:
        return ""
    for axis, (size, reach, stride, before, after, out) in enumerate(rows):
        if out != ceil((size + before + after - reach) / stride) + 1:
            return f"ceil_mode: the last window of axis {axis + 2} starts in the padding"
    return ""


def _counts_padding(node: NodeFacts) -> str:
    if not node.attribute("ceil_mode", 0) or not node.attribute("count_include_pad", 0):
        return ""
    rows = _geometry(node)
    if rows is not None and all((out - 1) * s + reach <= size + b + a for size, reach, s, b, a, out in rows):
        return ""  # no window reaches beyond the padding: ceil and floor are the same
    return "ceil_mode with count_include_pad"


def _rewrite_pool(facts: NodeFacts, edit: Edit) -> str:
    """Write padding at the end that gives the same windows without ceil_mode."""
    if facts.op == "AveragePool" and facts.attribute("count_include_pad", 0):
        return "" if facts.since >= 19 and not _rewrite_average(facts, edit) else "it counts its padding"
    pads = _floor_pads(facts)
    if isinstance(pads, str):
        return pads
    edit.drop("ceil_mode")
    edit.set("pads", pads)
    edit.forget_shapes(edit.node.outputs[0])  # onnx infers one element too many for this form
    return ""


def _floor_pads(facts: NodeFacts) -> list[int] | str:
    rows = _geometry(facts)
    if rows is None:
        return "the sizes of its input are not known"
    kernel = facts.attribute("kernel_shape")
    end = []
    for i, (size, reach, stride, before, _, out) in enumerate(rows):
        after = max(0, (out - 1) * stride + reach - size - before)
        if after >= kernel[i]:
            return "the padding would be as wide as the kernel"
        end.append(after)
    return [*(row[3] for row in rows), *end]


def _rewrite_average(facts: NodeFacts, edit: Edit) -> str:
    """Average without counting padding, and multiply by the part of each window that is data.

    From opset 19 on padding counts in the divisor, and what lies beyond the padding does not. A Pad before the pooling
    does not work: ONNX Runtime 1.20 fuses it into the AveragePool, which then counts differently.
    """
    rows = _geometry(facts)
    if rows is None:
        return "the sizes of its input are not known"
    x = facts.input(0)
    if x is None or x.type not in ("float", "float16"):
        return "its input is neither FP32 nor FP16"
    if len({pad for row in rows for pad in row[3:5]}) > 1:
        return "its paddings differ, and ONNX Runtime's CPU provider does not count them as ONNX does"
    if any(size + before + behind < reach for size, reach, _, before, behind, _ in rows):
        return "its kernel is longer than its padded input"  # ONNX and ONNX Runtime differ there
    pads = _floor_pads(facts)
    if isinstance(pads, str):
        return pads
    count = len(rows)
    edit.room([row[5] for row in rows], np.dtype(np.float64).itemsize, "the share of data in each of its windows")
    parts = np.ones([1] * count)
    for axis, (row, kernel) in enumerate(zip(rows, facts.attribute("kernel_shape"), strict=True)):
        share = _data_part(row, kernel)
        parts = parts * share.reshape([-1 if i == axis else 1 for i in range(count)])
    if not parts.all():
        return "one of its windows holds no data"
    edit.drop("ceil_mode", "count_include_pad")
    edit.set("pads", pads)
    if (parts == 1).all():
        edit.forget_shapes(edit.node.outputs[0])
        return ""
    old = edit.node.outputs[0]
    factor = edit.constant(parts.astype(np.float32 if x.type == "float" else np.float16), "data")
    average = edit.before(facts.op, list(edit.node.inputs), edit.node.attributes, dtype=old.dtype)
    edit.forget_shapes(old)
    return edit.become(edit.before("Mul", [average, factor], dtype=old.dtype))


def _data_part(row: tuple[int, int, int, int, int, int], kernel: int) -> NDArray[np.float64]:
    """For each window of an axis: elements of data by elements of data and padding."""
    size, reach, stride, before, behind, out = row
    dilation = (reach - 1) // (kernel - 1) if kernel > 1 else 1
    first = np.arange(out) * stride - before

    def below(end: int) -> NDArray[np.int64]:
        """How many elements of each window lie before ``end``."""
        return np.clip(-((first - end) // dilation), 0, kernel)

    return np.asarray((below(size) - below(0)) / below(size + behind), np.float64)


POOL_CEIL_EARLY = Quirk(
    id="pool-ceil",
    code="DP626",
    title="pooling window that starts in the padding",
    ops=("MaxPool", "AveragePool", "LpPool"),
    outcome="create fails",
    last="1.20",
    sources=("measured on onnxruntime-directml 1.20.1 with DirectML 1.15.2",),
    matches=_starts_in_padding,
    rewrite=_rewrite_pool,
)
POOL_CEIL = replace(
    POOL_CEIL_EARLY,
    outcome="wrong numbers",
    first="1.21",
    last=None,
    sources=(MEASURED,),
)

AVERAGEPOOL_CEIL = Quirk(
    id="averagepool-ceil",
    code="DP627",
    title="AveragePool with ceil_mode that counts padding",
    ops=("AveragePool",),
    outcome="wrong numbers",
    first="1.17",
    sources=(MEASURED,),
    matches=_counts_padding,
    rewrite=_rewrite_average,
)
