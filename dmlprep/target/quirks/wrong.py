"""Matchers of quirks that change results in silence."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from dmlprep.target.facts import NodeFacts, Value
from dmlprep.target.quirks.failing import fused_activation

__all__ = ["MATCHERS", "pool_geometry"]


def _output_before_activation(node: NodeFacts) -> str:
    out = node.output()
    if out is None or not out.graph_output:
        return ""
    activation = fused_activation(node)
    return f"{out.name} is an output and feeds {activation.op}" if activation is not None else ""


def _constant_output(node: NodeFacts) -> str:
    """Asked of readers: a constant that they read is an output as well."""
    for value in node.inputs:
        if value is not None and value.graph_output and _folds(value):
            return f"the output {value.name} is constant"
    return ""


def _folds(value: Value) -> bool:
    if value.constant:
        return True
    node = value.producer
    return node is not None and bool(node.inputs) and all(v is None or v.constant for v in node.inputs)


def _matmul_vector(node: NodeFacts) -> str:
    second = node.input(1)
    return "the second operand has one dimension" if second is not None and second.rank == 1 else ""


def _pad_negative(node: NodeFacts) -> str:
    pads = node.input(1)
    sizes = pads.integers() if pads is not None else None
    return f"pads {sizes}" if sizes is not None and any(p < 0 for p in sizes) else ""


def _empty_reduction(node: NodeFacts) -> str:
    x, out = node.input(0), node.output()
    if x is None or out is None or x.size != 0 or out.size == 0:
        return ""
    return f"{x.name} of shape {list(x.shape or ())} is empty, the result is not"


def _empty_product(node: NodeFacts) -> str:
    a, out = node.input(0), node.output()
    return f"{a.name} has no columns" if a is not None and out is not None and a.size == 0 and out.size != 0 else ""


def pool_geometry(node: NodeFacts) -> list[tuple[int, int, int, int, int, int]] | None:
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


def _pool_ceil(node: NodeFacts) -> str:
    if not node.attribute("ceil_mode", 0):
        return ""
    rows = pool_geometry(node)
    if rows is None:
        return ""
    for axis, (size, reach, stride, before, after, out) in enumerate(rows):
        if out != ceil((size + before + after - reach) / stride) + 1:
            return f"ceil_mode: the last window of axis {axis + 2} starts in the padding"
    return ""


def _average_ceil(node: NodeFacts) -> str:
    if not node.attribute("ceil_mode", 0) or not node.attribute("count_include_pad", 0):
        return ""
    rows = pool_geometry(node)
    if rows is not None and all((out - 1) * s + reach <= size + b + a for size, reach, s, b, a, out in rows):
        return ""  # no window reaches beyond the padding: ceil and floor are the same
    return "ceil_mode with count_include_pad"


def _resize_forms(node: NodeFacts) -> str:
    mode = node.attribute("mode", "nearest")
    place = node.attribute("coordinate_transformation_mode", "half_pixel")
    if mode == "linear" and place == "tf_crop_and_resize":
        return "linear with tf_crop_and_resize"
    if mode == "linear" and node.attribute("antialias", 0):
        return "linear with antialias"
    if mode == "linear" and place == "pytorch_half_pixel" and node.input(3) is not None:
        return "linear with pytorch_half_pixel and sizes"
    if mode == "nearest" and place == "align_corners" and node.attribute("nearest_mode") == "floor":
        return "nearest with align_corners and floor"
    return ""


def _cast_bool(node: NodeFacts) -> str:
    x, out = node.input(0), node.output()
    if x is None or out is None or out.type != "bool" or x.type in ("bool", ""):
        return ""
    risky = x.type in ("float", "float16", "double", "int64", "uint64")
    return f"{x.type} to bool" if risky else ""


def _roi_align_max(node: NodeFacts) -> str:
    return "mode max" if node.attribute("mode", "avg") == "max" else ""


def _clip_crossed(node: NodeFacts) -> str:
    low, high = (v.array() if v is not None else None for v in (node.input(1), node.input(2)))
    if low is None or high is None or low.size != 1 or high.size != 1:
        return ""
    return (
        f"min {low.reshape(-1)[0]} above max {high.reshape(-1)[0]}" if low.reshape(-1)[0] > high.reshape(-1)[0] else ""
    )


def _always(node: NodeFacts) -> str:
    return node.op


MATCHERS: dict[str, Callable[[NodeFacts], str]] = {
    "output-before-activation": _output_before_activation,
    "constant-output": _constant_output,
    "matmul-vector": _matmul_vector,
    "pad-negative": _pad_negative,
    "empty-reduction": _empty_reduction,
    "empty-product": _empty_product,
    "pool-ceil": _pool_ceil,
    "averagepool-ceil": _average_ceil,
    "resize-forms": _resize_forms,
    "cast-bool": _cast_bool,
    "roialign-max": _roi_align_max,
    "clip-crossed": _clip_crossed,
    "dynamic-quantize": _always,
}
"""Quirk id -> matcher."""
