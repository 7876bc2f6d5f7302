"""Rewrites of operators that slide a window or resample: ConvTranspose, pooling, Resize."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlprep.passes.fix_quirks.editing import Edit
from dmlprep.passes.fix_quirks.products import squeeze, unsqueeze
from dmlprep.targets.facts import NodeFacts
from dmlprep.targets.quirks.wrong import pool_geometry

__all__ = ["averagepool_ceil", "convtranspose_output_padding", "convtranspose_same", "pool_ceil", "resize_aspect"]


def convtranspose_same(facts: NodeFacts, edit: Edit) -> str:
    """SAME makes the output stride times the input: the pads follow from kernel, stride and dilation alone.

    total = output_padding + (kernel - 1) * dilation + 1 - stride (ONNX, ConvTranspose, with output = input * stride).
    """
    weight = facts.input(1)
    kernel = list(facts.attribute("kernel_shape", []))
    if not kernel and weight is not None and weight.static and weight.shape is not None:
        kernel = [d for d in weight.shape[2:] if isinstance(d, int)]
    if not kernel:
        return "its kernel's size is not known"
    if facts.has("output_shape"):
        return "it has output_shape as well"
    count = len(kernel)
    strides = list(facts.attribute("strides", [1] * count))
    dilations = list(facts.attribute("dilations", [1] * count))
    extra = list(facts.attribute("output_padding", [0] * count))
    upper = facts.attribute("auto_pad") == "SAME_UPPER"
    begin, end = [], []
    for i in range(count):
        total = extra[i] + (kernel[i] - 1) * dilations[i] + 1 - strides[i]
        if total < 0:
            return "its stride is longer than its kernel"
        small, large = total // 2, total - total // 2
        begin.append(small if upper else large)
        end.append(large if upper else small)
    edit.drop("auto_pad")
    edit.set("pads", [*begin, *end])
    return ""


def convtranspose_output_padding(facts: NodeFacts, edit: Edit) -> str:
    """Less padding at the end says the same; where there is too little of it, the data gets a second dimension of 1."""
    extra = int(facts.attribute("output_padding")[0])
    pads = list(facts.attribute("pads", [0, 0]))
    if facts.attribute("auto_pad", "NOTSET") != "NOTSET" or facts.has("output_shape"):
        if extra:
            return "it has auto_pad or output_shape as well"
        edit.drop("output_padding")
        return ""
    edit.drop("output_padding")
    if pads[1] >= extra:
        edit.set("pads", [pads[0], pads[1] - extra])
        return ""
    data, weight = edit.node.inputs[:2]
    assert data is not None
    assert weight is not None
    edit.set_input(0, unsqueeze(edit, data, 2, facts.opset))
    edit.set_input(1, unsqueeze(edit, weight, 2, facts.opset))
    edit.set("output_padding", [0, extra])
    edit.set("pads", [0, pads[0], 0, pads[1]])
    for name in ("strides", "dilations", "kernel_shape"):
        if facts.has(name):
            edit.set(name, [1, *facts.attribute(name)])
    flat = edit.twin()
    edit.replace_output(squeeze(edit, flat, 2, facts.opset))
    edit.remove()
    return ""


def pool_ceil(facts: NodeFacts, edit: Edit) -> str:
    """Padding at the end that gives the same windows without ceil_mode."""
    if facts.op == "AveragePool" and facts.attribute("count_include_pad", 0):
        return "" if facts.since >= 19 and not averagepool_ceil(facts, edit) else "it counts its padding"
    pads = _floor_pads(facts)
    if isinstance(pads, str):
        return pads
    edit.drop("ceil_mode")
    edit.set("pads", pads)
    edit.forget_shapes(edit.node.outputs[0])  # onnx infers one element too many for this form
    return ""


def _floor_pads(facts: NodeFacts) -> list[int] | str:
    rows = pool_geometry(facts)
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


def averagepool_ceil(facts: NodeFacts, edit: Edit) -> str:
    """Average without counting padding, times the part of each window that is data.

    From opset 19 on padding counts in the divisor, what lies beyond it does not. A Pad before it is no way: ONNX
    Runtime 1.20 fuses it into the AveragePool, which then counts otherwise.
    """
    rows = pool_geometry(facts)
    if rows is None:
        return "the sizes of its input are not known"
    x = facts.input(0)
    if x is None or x.type not in ("float", "float16"):
        return "its input is neither FP32 nor FP16"
    if len({pad for row in rows for pad in row[3:5]}) > 1:
        return "its paddings differ, and ONNX Runtime's CPU provider counts them otherwise than ONNX"
    if any(size + before + behind < reach for size, reach, _, before, behind, _ in rows):
        return "its kernel is longer than its padded input"  # ONNX and ONNX Runtime differ there
    pads = _floor_pads(facts)
    if isinstance(pads, str):
        return pads
    count = len(rows)
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
    average = edit.before(facts.op, list(edit.node.inputs), dtype=old.dtype)
    made = average.producer()
    assert made is not None
    for attribute in edit.node.attributes.values():
        made.attributes[attribute.name] = attribute
    edit.forget_shapes(old)
    edit.replace_output(edit.before("Mul", [average, factor], dtype=old.dtype))
    edit.remove()
    return ""


def _data_part(row: tuple[int, int, int, int, int, int], kernel: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """For each window of an axis: elements of data by elements of data and padding."""
    size, reach, stride, before, behind, out = row
    dilation = (reach - 1) // (kernel - 1) if kernel > 1 else 1
    places = np.arange(out)[:, None] * stride - before + np.arange(kernel)[None, :] * dilation
    data = ((places >= 0) & (places < size)).sum(axis=1)
    counted = (places < size + behind).sum(axis=1)
    return np.asarray(data / counted, np.float64)


def resize_aspect(facts: NodeFacts, edit: Edit) -> str:
    """The scales that the policy means, where rounding gives the sizes that the policy gives."""
    x, sizes_value = facts.input(0), facts.input(3)
    sizes = sizes_value.integers() if sizes_value is not None else None
    if sizes is None or x is None or x.shape is None:
        return "its sizes are not constant, or its rank is not known"
    rank = len(x.shape)
    axes = [a + rank if a < 0 else a for a in facts.attribute("axes", list(range(rank)))]
    inputs = [x.shape[a] for a in axes]
    known = [d for d in inputs if isinstance(d, int) and d > 0]
    if len(known) != len(axes) or len(sizes) != len(axes):
        return "the sizes of its input are not known"
    ratios = [np.float32(s) / np.float32(d) for s, d in zip(sizes, known, strict=True)]
    scale = min(ratios) if facts.attribute("keep_aspect_ratio_policy") == "not_larger" else max(ratios)
    wanted = [int(np.floor(np.float32(scale * np.float32(d)) + np.float32(0.5))) for d in known]
    if wanted != [int(np.floor(np.float32(scale * np.float32(d)))) for d in known]:
        return "the sizes that the policy rounds to are not those of a scale"
    edit.set_input(3, None)
    edit.set_input(2, edit.constant(np.full(len(axes), scale, np.float32), "scales"))
    edit.node.resize_inputs(3)
    edit.drop("keep_aspect_ratio_policy")
    return ""
