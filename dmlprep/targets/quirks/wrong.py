"""Matchers of quirks that change results in silence."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from dmlprep.targets.facts import Dim, NodeFacts, Value
from dmlprep.targets.quirks.failing import fused_activation

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


def _empty_output(node: NodeFacts) -> str:
    """An output of the model that is empty: the provider's copy of all outputs to the CPU ends at it."""
    empty = [v.name for v in node.outputs if v is not None and v.graph_output and v.size == 0]
    return f"the output {empty[0]} is empty" if empty and not node.graph else ""


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
    if mode == "linear" and place == "tf_crop_and_resize" and not node.has("axes"):
        return "linear with tf_crop_and_resize"
    if mode == "linear" and node.attribute("antialias", 0) and (shrinks := _shrinks(node)):
        return f"linear with antialias{shrinks}"
    if place == "pytorch_half_pixel" and mode != "cubic" and _has_one(node):
        return f"{mode} with pytorch_half_pixel to a size of 1"
    rounding = node.attribute("nearest_mode", "round_prefer_floor")
    if mode == "nearest" and (place, rounding) in _UNSTABLE:
        return f"nearest with {place} and {rounding}"
    return ""


_UNSTABLE = frozenset({("align_corners", "floor"), ("align_corners", "round_prefer_ceil")})
"""Coordinates that should be whole, or halves, come out a rounding below, for some sizes (8 to 2, 3, 5, 9)."""


def _resized(node: NodeFacts) -> list[tuple[Dim, Dim]]:
    x, out = node.input(0), node.output()
    if x is None or out is None or x.shape is None or out.shape is None:
        return [(None, None)]
    return list(zip(x.shape, out.shape, strict=False))


def _shrinks(node: NodeFacts) -> str:
    """What to add to the detail where an axis gets shorter; empty where none does."""
    pairs = _resized(node)
    if any(isinstance(a, int) and isinstance(b, int) and b < a for a, b in pairs):
        return " to a smaller size"
    scales = node.input(2)
    array = scales.array() if scales is not None else None
    if array is not None and array.size:
        return " to a smaller size" if (array < 1).any() else ""
    unknown = any(a != b and not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)
    return " to a size that may hold fewer" if unknown else ""


def _has_one(node: NodeFacts) -> bool:
    return any(b == 1 and a != 1 for a, b in _resized(node))


def _resize_crop_axes(node: NodeFacts) -> str:
    place = node.attribute("coordinate_transformation_mode", "half_pixel")
    return "tf_crop_and_resize with axes" if place == "tf_crop_and_resize" and node.has("axes") else ""


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


def _einsum_labels(node: NodeFacts) -> str:
    """Five labels, one of them summed, and four in the result, unless each operand has one of its own there.

    A label for rows, one for columns and one that is summed make a matrix product, and so does an element-wise
    product of five dimensions that is summed along one; what is neither comes out wrong.
    """
    left, arrow, right = "".join(str(node.attribute("equation", "")).split()).partition("->")
    terms = [set(term) for term in left.split(",")]
    if len(terms) != 2 or "." in left:
        return ""
    every = left.replace(",", "")
    wanted = set(right) if arrow else {label for label in every if every.count(label) == 1}
    if len(set(every)) != 5 or len(wanted) != 4:
        return ""
    if terms[0] == terms[1] or (wanted & (terms[0] - terms[1]) and wanted & (terms[1] - terms[0])):
        return ""
    return f"{left}->{''.join(right) if arrow else ''}: five labels, one summed"


def _through(value: Value | None) -> Value | None:
    """The value that Identities hand on; ONNX Runtime takes them out."""
    while value is not None and value.producer is not None and value.producer.key == "Identity":
        value = value.producer.input(0)
    return value


def gated(node: NodeFacts) -> tuple[int, Value, NodeFacts] | None:
    """Of a Mul of one part of a Split and the Sigmoid of another: input that is the part, the part, the Split."""
    for index in (0, 1):
        part, gate = _through(node.input(index)), _through(node.input(1 - index))
        sigmoid = gate.producer if gate is not None else None
        if part is None or gate is None or sigmoid is None or sigmoid.key != "Sigmoid":
            continue
        if len(gate.consumers) != 1 or gate.graph_output:
            continue  # the product is fused with a Sigmoid that nothing else reads
        other, split = _through(sigmoid.input(0)), part.producer
        if other is None or other is part or split is None or split.key != "Split":
            continue
        if other.producer is split and split.graph == node.graph:
            return index, part, split
    return None


def _split_gate(node: NodeFacts) -> str:
    found = gated(node)
    return f"{found[1].name} times the sigmoid of another part of {found[2].label}" if found is not None else ""


def _always(node: NodeFacts) -> str:
    return node.op


MATCHERS: dict[str, Callable[[NodeFacts], str]] = {
    "output-before-activation": _output_before_activation,
    "constant-output": _constant_output,
    "matmul-vector": _matmul_vector,
    "pad-negative": _pad_negative,
    "empty-reduction": _empty_reduction,
    "empty-output": _empty_output,
    "empty-product": _empty_product,
    "pool-ceil": _pool_ceil,
    "averagepool-ceil": _average_ceil,
    "resize-forms": _resize_forms,
    "resize-crop-axes": _resize_crop_axes,
    "cast-bool": _cast_bool,
    "roialign-max": _roi_align_max,
    "clip-crossed": _clip_crossed,
    "dynamic-quantize": _always,
    "einsum-labels": _einsum_labels,
    "split-gate": _split_gate,
}
"""Quirk id -> matcher."""
