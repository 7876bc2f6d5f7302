"""Resize in forms that DirectML computes wrong: the rewrite uses constant weights or indices for each axis.

Coordinates are computed in FP32 as in ONNX's text of Resize and in ONNX Runtime's CPU provider
(onnxruntime/core/providers/cpu/tensor/upsamplebase.h, upsample_antialias.h).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from dmlprep.directml.quirks.declaring import MEASURED, Edit, Match, NodeFacts, Quirk
from dmlprep.graph.model.dims import Dim
from dmlprep.portable.arrays import Array

_UNSTABLE = frozenset({("align_corners", "floor"), ("align_corners", "round_prefer_ceil")})
"""Modes with unstable rounding: coordinates that should be whole numbers or halves are rounded down, for some sizes (8
to 2, 3, 5, 9)."""

Floats = NDArray[np.float32]
_F = np.float32

_MOST = 1 << 22
"""The most weights of one axis (16 MiB): with more, the file would be larger than the model."""


def _computed_otherwise(node: NodeFacts) -> str | Match:
    mode, place = node.attribute("mode", "nearest"), _place(node)
    if mode == "linear" and place == "tf_half_pixel_for_nn":
        return "mode linear with tf_half_pixel_for_nn"
    if mode == "linear" and place == "tf_crop_and_resize" and not node.has("axes"):
        return "mode linear with tf_crop_and_resize"
    if mode == "linear" and node.attribute("antialias", 0) and (shrinks := _shrinks(node)):
        return Match(f"mode linear with antialias{shrinks.text}", shrinks.sure)
    if place == "pytorch_half_pixel" and mode != "cubic" and any(b == 1 and a != 1 for a, b in _resized(node)):
        return f"mode {mode} with pytorch_half_pixel, to a size of 1"
    rounding = node.attribute("nearest_mode", "round_prefer_floor")
    if mode == "nearest" and (place, rounding) in _UNSTABLE:
        return f"mode nearest with {place} and {rounding}"
    return ""


def _before_11(node: NodeFacts) -> str | Match:
    """The reason, if DirectML computes a Resize or Upsample below opset 11 wrong; empty otherwise.

    DirectML uses half_pixel coordinates there; nearest rounds them, and prefers the lower element.
    """
    if node.since >= 11:
        return ""
    scales = _scales(node)
    if node.attribute("mode", "nearest") == "linear":
        return f"mode linear at opset {node.opset}, below 11" if scales is None or (scales != 1).any() else ""
    if scales is None:
        return Match(f"mode nearest at opset {node.opset}, below 11, with unknown scales", sure=False)
    x, at = node.input(0), np.arange(64, dtype=_F)
    for axis, scale in enumerate(scales[scales > 0]):
        size = x.shape[axis] if x is not None and x.shape is not None and axis < len(x.shape) else None
        part = at[: int(np.floor(_F(size) * scale))] if isinstance(size, int) else at
        if (np.ceil((part + _F(0.5)) / scale - 1).clip(0) != (np.ceil if scale < 1 else np.floor)(part / scale)).any():
            return f"mode nearest at opset {node.opset}, below 11, with scale {scale:g}"
    return ""


def _place(node: NodeFacts) -> str:
    place: str = node.attribute("coordinate_transformation_mode", "half_pixel")
    return place if node.since >= 11 else "asymmetric"


def _scales(node: NodeFacts) -> Floats | None:
    """The scales of an Upsample, or of a Resize; ``None`` if they are not constant."""
    scales = node.attribute("scales") if node.has("scales") else node.array(1 if node.since < 11 else 2)
    return np.asarray(scales, _F).reshape(-1) if scales is not None and np.size(scales) else None


def _resized(node: NodeFacts) -> list[tuple[Dim, Dim]]:
    x, out = node.input(0), node.output()
    shapes = [value.shape for value in (x, out) if value is not None and value.shape is not None]
    return list(zip(*shapes, strict=False)) if len(shapes) == 2 else [(None, None)]


def _shrinks(node: NodeFacts) -> Match | None:
    """A match with text for the reason, if an axis becomes shorter or might (not sure); ``None`` if no axis does."""
    pairs = _resized(node)
    if any(isinstance(a, int) and isinstance(b, int) and b < a for a, b in pairs):
        return Match(" to a smaller size")
    if (scales := _scales(node)) is not None:
        return Match(" to a smaller size") if (scales < 1).any() else None
    unknown = any(a != b and not (isinstance(a, int) and isinstance(b, int)) for a, b in pairs)
    return Match(" to a size that might be smaller", sure=False) if unknown else None


def _crops_axes(node: NodeFacts) -> str:
    place = node.attribute("coordinate_transformation_mode", "half_pixel")
    return "tf_crop_and_resize with axes" if place == "tf_crop_and_resize" and node.has("axes") else ""


def _has_unused_region(node: NodeFacts) -> str:
    """The reason, if a Resize has axes and a region (input roi) that its mode does not use; empty otherwise."""
    roi, place = node.input(1), node.attribute("coordinate_transformation_mode", "half_pixel")
    unused = roi is not None and roi.size != 0 and place != "tf_crop_and_resize" and node.has("axes")
    return f"a region with {place} and axes" if unused else ""


def _without_region(facts: NodeFacts, edit: Edit) -> str:
    """Remove the region, which the mode does not use."""
    edit.set_input(1, None)
    return ""


@dataclass(frozen=True)
class _Axis:
    """One resized axis: the position in the input, in elements, for each output element (``coordinates``)."""

    axis: int
    size: int
    scale: float
    coordinates: Floats


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Write MatMul with constant weights along each axis (linear), or Gather of constant indices (nearest)."""
    axes, x = _axes(facts, edit), facts.required()
    if isinstance(axes, str):
        return axes
    if x.type not in ("float", "float16"):
        return "its type is neither FP32 nor FP16"
    if any(a.size * len(a.coordinates) > _MOST for a in axes):
        return "the weights of an axis would be larger than 16 MiB"
    value, old, shape = edit.input(), edit.output, x.sizes
    linear = facts.attribute("mode", "nearest") == "linear"
    if linear:
        value = edit.single(value, x.type)
    for a in axes:
        shape[a.axis] = len(a.coordinates)
        if linear:
            value = _weighted(edit, value, _weights(facts, a), a.axis, shape)
        else:
            indices = edit.integers(_nearest(facts, a).tolist(), "indices")
            value = edit.before("Gather", [value, indices], {"axis": a.axis}, like=old, shape=shape)
    value = _outside(facts, edit, value, axes, shape)
    if linear and x.type == "float16":
        value = edit.before("Cast", [value], {"to": int(ir.DataType.FLOAT16)}, like=old)
    if value is edit.input():
        value = edit.before("Identity", [value], like=old)
    return edit.become(value)


def _axes(facts: NodeFacts, edit: Edit) -> list[_Axis] | str:
    x = facts.required()
    if not x.static:
        return "the sizes of its input are unknown: pin the free dimensions of the model"
    if facts.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        return "it keeps the aspect ratio"
    rank = len(x.sizes)
    axes = [a + rank if a < 0 else a for a in facts.attribute("axes", range(rank))]
    inputs = (1, 3) if facts.since >= 11 else (3, 3)
    roi, sizes = (array if array is not None and array.size else None for array in map(facts.array, inputs))
    scales, place = _scales(facts), _place(facts)
    crop = place == "tf_crop_and_resize"
    if (scales is None) == (sizes is None) or (crop and roi is None):
        return "its scales, sizes or region are not constant"
    region = roi.reshape(-1) if crop and roi is not None else np.repeat([0, 1], len(axes))
    numbers = (scales if scales is not None else sizes).reshape(-1)  # type: ignore[union-attr]
    if numbers.size != len(axes) or region.size != 2 * len(axes):
        return "its scales, sizes or region do not match its axes"
    resized_axes = []
    for i, axis in enumerate(axes):
        size = x.sizes[axis]
        if scales is not None:
            scale = _F(numbers[i])
            if not 0 < scale < np.inf:
                return "a scale is not a positive number"
            out = int(np.floor(_F(size) * scale))
        else:
            out = max(0, int(numbers[i]))
            scale = _F(out) / _F(size)
        start, end = _F(region[i]), _F(region[i + len(axes)])
        if (out == size and scale == 1 and start == 0 and end == 1) or not size:
            continue
        if scale == 1:
            return "it crops without resizing: ONNX Runtime and ONNX define this differently"
        edit.room((out,), _F().itemsize, "the coordinates of an axis")
        where = _coordinates(place, size, out, scale, start, end)
        if where is None:
            return f"coordinates of {place}"
        resized_axes.append(_Axis(axis, size, float(scale), where))
    return sorted(resized_axes, key=lambda a: len(a.coordinates) / a.size)  # shrinking axes go first


def _coordinates(place: str, size: int, out: int, scale: np.float32, start: np.float32, end: np.float32) -> Any:
    """The position in the input for each element of the output, in FP32; ``None`` for an unknown mode ``place``.

    ``start`` and ``end`` are the region of tf_crop_and_resize, as shares of the input; other modes ignore them.
    """
    at = np.arange(out, dtype=_F)
    half = _F(0.5)
    if place == "half_pixel" or (place == "pytorch_half_pixel" and out > 1):
        return (at + half) / scale - half
    if place == "pytorch_half_pixel":
        return np.zeros(out, _F)
    if place == "align_corners":
        return np.zeros(out, _F) if out == 1 else at * _F(size - 1) / _F(out - 1)
    if place == "asymmetric":
        return at / scale
    if place == "tf_half_pixel_for_nn":
        return (at + half) / scale
    if place == "half_pixel_symmetric":
        offset = _F(size) / _F(2) * (_F(1) - _F(out) / (scale * _F(size)))
        return offset + (at + half) / scale - half
    if place == "tf_crop_and_resize":
        last = _F(size - 1)
        if out == 1:
            return np.full(1, half * (start + end) * last, _F)
        return start * last + at * (end - start) * last / _F(out - 1)
    return None


def _weights(facts: NodeFacts, a: _Axis) -> Floats:
    """The weights of linear interpolation along one axis, with antialias if set, as a matrix [output, input]."""
    if facts.attribute("antialias", 0) and a.scale < 1:
        return _triangles(a)
    weights = np.zeros((len(a.coordinates), a.size), _F)
    where = np.clip(a.coordinates, 0, a.size - 1).astype(_F)
    low = np.minimum(where.astype(np.int64), a.size - 1)
    high = np.minimum(low + 1, a.size - 1)
    part = np.where(low == high, _F(0.5), where - low.astype(_F)).astype(_F)
    rows = np.arange(len(a.coordinates))
    np.add.at(weights, (rows, low), _F(1) - part)
    np.add.at(weights, (rows, high), part)
    return weights


def _triangles(a: _Axis) -> Floats:
    """The weights of linear interpolation with antialias along a shrinking axis, as a matrix [output, input].

    They are a triangle as wide as two output elements. Weights beyond the edge count for the element at the edge.
    """
    weights = np.zeros((len(a.coordinates), a.size), np.float64)
    reach = _F(1) / _F(a.scale)
    for row, place in enumerate(a.coordinates):
        centre = place + _F(0.5)
        first, last = int(np.floor(centre - reach + _F(0.5))), int(np.floor(centre + reach + _F(0.5)))
        for column in range(first, last):
            weights[row, min(max(column, 0), a.size - 1)] += max(
                0.0, 1.0 - abs((column - float(centre) + 0.5) * a.scale)
            )
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total), _F)


def _nearest(facts: NodeFacts, a: _Axis) -> Array:
    mode, where = facts.attribute("nearest_mode", "round_prefer_floor"), a.coordinates
    if facts.since < 11:
        mode = "ceil" if a.scale < 1 else "floor"
    if mode in ("floor", "round_prefer_ceil"):
        indices = np.floor(where if mode == "floor" else where + _F(0.5))
    else:
        indices = np.ceil(where if mode == "ceil" else where - _F(0.5))
    return np.clip(indices.astype(np.int64), 0, a.size - 1)


def _weighted(edit: Edit, value: ir.Value, weights: Floats, axis: int, shape: list[int]) -> ir.Value:
    """Add nodes that multiply ``value`` by [output, input] weights along an axis; return the product, of ``shape``."""
    single, rank = ir.DataType.FLOAT, len(shape)
    if axis == rank - 1:
        return edit.before("MatMul", [value, edit.constant(weights.T, "weights")], dtype=single, shape=shape)
    if axis == rank - 2:
        return edit.before("MatMul", [edit.constant(weights, "weights"), value], dtype=single, shape=shape)
    perm = [*(i for i in range(rank) if i != axis), axis]
    turned = edit.before("Transpose", [value], {"perm": perm}, dtype=single)
    product = edit.before("MatMul", [turned, edit.constant(weights.T, "weights")], dtype=single)
    return edit.before("Transpose", [product], {"perm": list(np.argsort(perm))}, dtype=single, shape=shape)


def _outside(facts: NodeFacts, edit: Edit, value: ir.Value, axes: list[_Axis], shape: list[int]) -> ir.Value:
    """Return ``value`` with 0 where a coordinate is beyond the input, as tf_crop_and_resize defines it.

    In other modes, return ``value`` itself. DirectML supports no other ``extrapolation_value`` than 0.
    """
    if facts.attribute("coordinate_transformation_mode") != "tf_crop_and_resize":
        return value
    beyond = np.zeros([1] * len(shape), bool)
    for a in axes:
        lost = (a.coordinates < 0) | (a.coordinates > a.size - 1)
        beyond = beyond | lost.reshape([-1 if i == a.axis else 1 for i in range(len(shape))])
    if not beyond.any():
        return value
    kind = value.dtype or ir.DataType.FLOAT
    zero = edit.constant(np.zeros((), kind.numpy()), "zero")
    return edit.before("Where", [edit.constant(beyond, "beyond"), zero, value], dtype=kind, shape=shape)


RESIZE_FORMS = Quirk(
    id="resize-forms",
    code="DP628",
    title="Resize in a form that DirectML computes wrongly",
    ops=("Resize",),
    outcome="wrong numbers",
    sources=(MEASURED, "onnxruntime/test/onnx/TestCase.cc (resize_downsample_sizes_linear_pytorch_half_pixel)"),
    matches=_computed_otherwise,
    rewrite=_rewrite,
)

RESIZE_CROP_AXES = Quirk(
    id="resize-crop-axes",
    code="DP613",
    title="Resize with axes and a region",
    ops=("Resize",),
    outcome="crash",
    first="1.19",
    matches=_crops_axes,
    rewrite=_rewrite,
)


def _fails(nodes: Sequence[NodeFacts], partitions: Mapping[int, int]) -> list[bool | Match]:
    """A match that is not certain for each fused node with sizes: measured, some are right, and some crash."""
    unsure = Match(" in a fused graph", sure=False)
    return [unsure if id(n) in partitions and n.input(3) is not None else True for n in nodes]


RESIZE_REGION = replace(
    RESIZE_CROP_AXES,
    id="resize-region",
    matches=_has_unused_region,
    fused=_fails,
    rewrite=_without_region,
)

RESIZE_BEFORE_11 = replace(
    RESIZE_FORMS,
    id="resize-before-11",
    ops=("Resize", "Upsample"),
    sources=("measured on 1.24.4 and 1.30.0: tests/benchmarks/operator_versions.py",),
    matches=_before_11,
    mended_at=11,
)


def _matches(node: NodeFacts) -> str:
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    return f"keep_aspect_ratio_policy {policy}" if policy != "stretch" else ""


def _rewrite_aspect(facts: NodeFacts, edit: Edit) -> str:
    """Replace sizes and policy by the scales that follow from them, if these give the same sizes."""
    x, sizes = facts.required(), facts.integers(3)
    if sizes is None or x.shape is None:
        return "its sizes are not constant, or its rank is unknown"
    rank = len(x.shape)
    axes = [a + rank if a < 0 else a for a in facts.attribute("axes", list(range(rank)))]
    known = [d for d in (x.shape[a] for a in axes) if isinstance(d, int) and d > 0]
    if len(known) != len(axes) or len(sizes) != len(axes):
        return "the sizes of its input are unknown"
    ratios = [np.float32(s) / np.float32(d) for s, d in zip(sizes, known, strict=True)]
    scale = min(ratios) if facts.attribute("keep_aspect_ratio_policy") == "not_larger" else max(ratios)
    wanted = [int(np.floor(np.float32(scale * np.float32(d)) + np.float32(0.5))) for d in known]
    if wanted != [int(np.floor(np.float32(scale * np.float32(d)))) for d in known]:
        return "no scale gives the sizes that the policy rounds to"
    edit.set_input(3, None)
    edit.set_input(2, edit.constant(np.full(len(axes), scale, np.float32), "scales"))
    edit.node.resize_inputs(3)
    edit.drop("keep_aspect_ratio_policy")
    return ""


QUIRK = Quirk(
    id="resize-aspect",
    code="DP610",
    title="Resize that keeps the aspect ratio",
    ops=("Resize",),
    outcome="run fails",
    first="1.19",
    matches=_matches,
    rewrite=_rewrite_aspect,
)
