"""Matchers of quirks that make a session fail: while it is made, or at the first run.

A matcher says what of a node is concerned, in one clause; ``""`` where it is not. It is asked only for nodes that run
on DirectML.
"""

from __future__ import annotations

from collections.abc import Callable

from dmlprep.targets.facts import Dim, NodeFacts, Value

__all__ = ["ACTIVATIONS", "MATCHERS", "MAX_RANK", "fused_activation", "narrower", "per_axis"]

ACTIVATIONS = frozenset(
    {
        "Sigmoid",
        "HardSigmoid",
        "Tanh",
        "ScaledTanh",
        "Relu",
        "LeakyRelu",
        "ThresholdedRelu",
        "Elu",
        "Selu",
        "Softsign",
        "Softplus",
        "ParametricSoftplus",
    }
)
"""Operators that DirectML's provider fuses into the operator before them (GraphTransformer.cpp), at level EXTENDED."""

_ADDS = frozenset({"Add", "Sum"})
MAX_RANK = 8
"""DML_TENSOR_DIMENSION_COUNT_MAX1 (DirectML.h)."""


def fused_activation(node: NodeFacts) -> NodeFacts | None:
    """The activation that the provider fuses into a node: its output's only reader."""
    out = node.output()
    if out is None or len(out.consumers) != 1:
        return None
    reader = out.consumers[0]
    wanted = {"Relu", "LeakyRelu"} if node.op in _ADDS else ACTIVATIONS
    return reader if not reader.domain and reader.op in wanted and reader.graph == node.graph else None


def _reshape_allowzero(node: NodeFacts) -> str:
    if not node.attribute("allowzero", 0):
        return ""
    shape = node.input(1)
    sizes = shape.integers() if shape is not None else None
    if sizes is not None:
        return f"allowzero=1 with shape {sizes}" if -1 in sizes else ""
    return "allowzero=1 with a shape that may hold -1"


def _gemm_without_c(node: NodeFacts) -> str:
    if node.input(2) is not None:
        return ""
    activation = fused_activation(node)
    return f"no C, and {activation.op} follows" if activation is not None else ""


def _mvn_before_activation(node: NodeFacts) -> str:
    activation = fused_activation(node)
    return f"{activation.op} follows" if activation is not None else ""


def _matmul_rank(node: NodeFacts) -> str:
    ranks = [v.rank for v in (node.input(0), node.input(3 if node.op == "QLinearMatMul" else 1)) if v is not None]
    top = max((r for r in ranks if r is not None), default=0)
    return f"operands of rank {', '.join(str(r) for r in ranks)}" if top > 4 else ""


def _rank(node: NodeFacts) -> str:
    for value in [*node.inputs, *node.outputs]:
        if value is not None and (value.rank or 0) > MAX_RANK:
            return f"{value.name} has rank {value.rank}, DirectML takes {MAX_RANK}"
    return ""


def per_axis(node: NodeFacts) -> int | None:
    """The axis (0 or more) of a per-axis QuantizeLinear or DequantizeLinear.

    Returns:
        ``None`` where it is per tensor, blocked or not known.
    """
    x, scale = node.input(0), node.input(1)
    if x is None or scale is None or x.rank is None or scale.rank != 1 or node.attribute("block_size", 0):
        return None
    if scale.size == 1:
        return None
    axis = int(node.attribute("axis", 1))
    return axis + x.rank if axis < 0 else axis


def _quantize_axis(node: NodeFacts) -> str:
    axis = per_axis(node)
    x = node.input(0)
    if node.since < 21 or axis is None or x is None or x.rank is None or axis == x.rank - 1:
        return ""  # the kernels of opset 13 and 19 are right at every axis
    return f"per axis {axis} of rank {x.rank}"


def _dequantize_axis_omitted(node: NodeFacts) -> str:
    x, scale = node.input(0), node.input(1)
    if x is None or scale is None or node.has("axis") or x.type != "int32" or x.rank != 1 or scale.shape != (1,):
        return ""
    return "int32 vector with a scale of shape [1] and no axis"


def _split_empty(node: NodeFacts) -> str:
    empty = [v.name for v in node.outputs if v is not None and v.size == 0 and v.consumers]
    return f"output {', '.join(empty)} is empty, and read" if empty else ""


def _convtranspose_same(node: NodeFacts) -> str:
    pad = node.attribute("auto_pad", "NOTSET")
    strides = node.attribute("strides", [1])
    return f"auto_pad {pad} with strides {list(strides)}" if pad.startswith("SAME") and max(strides) > 1 else ""


def _convtranspose_output_padding(node: NodeFacts) -> str:
    x = node.input(0)
    extra = node.attribute("output_padding")
    return f"output_padding {list(extra)} in one dimension" if extra and x is not None and x.rank == 3 else ""


def _half_scales(node: NodeFacts) -> str:
    scales = (node.input(1), node.input(4), node.input(6))
    half = [v.name for v in scales if v is not None and v.type == "float16"]
    return f"FP16 scales {', '.join(half)}" if half else ""


def _resize_aspect(node: NodeFacts) -> str:
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    return f"keep_aspect_ratio_policy {policy}" if policy != "stretch" else ""


def _optional_without_input(node: NodeFacts) -> str:
    return "" if node.input(0) is not None else "no input"


def _squeeze_shared(node: NodeFacts) -> str:
    data: Value | None = node.input(0)
    return f"data and axes are both {data.name}" if data is not None and data is node.input(1) else ""


def _no_zero_point(node: NodeFacts) -> str:
    return "" if node.input(2) is not None or node.since >= 21 else "no zero point"


def _grid_sample_rank(node: NodeFacts) -> str:
    x = node.input(0)
    return f"data of rank {x.rank}" if x is not None and x.rank is not None and x.rank != 4 else ""


def _by_elements(node: NodeFacts) -> tuple[int, list[tuple[Dim, Dim]]] | None:
    """Axis of a GatherElements or ScatterElements, and sizes of data and indices by dimension; None where not known."""
    data, indices = node.input(0), node.input(1)
    if data is None or indices is None or data.shape is None or indices.shape is None:
        return None
    if not data.shape or len(data.shape) != len(indices.shape):
        return None
    return int(node.attribute("axis", 0)) % len(data.shape), [*zip(data.shape, indices.shape, strict=True)]


def narrower(node: NodeFacts) -> list[int]:
    """Dimensions, off the axis, in which the indices of a GatherElements or ScatterElements are fewer than the data."""
    found = _by_elements(node)
    if found is None:
        return []
    axis, sizes = found
    known = [(i, d, n) for i, (d, n) in enumerate(sizes) if i != axis and isinstance(d, int) and isinstance(n, int)]
    return [i for i, d, n in known if n < d]


def _narrow_indices(node: NodeFacts) -> str:
    data, indices = node.input(0), node.input(1)
    if data is None or indices is None or not narrower(node):
        return ""
    return f"data {list(data.shape or ())} with indices {list(indices.shape or ())}"


def _scatter_more(node: NodeFacts) -> str:
    found = _by_elements(node)
    if found is None:
        return ""
    axis, sizes = found
    places, updates = sizes[axis]
    if not isinstance(places, int) or not isinstance(updates, int) or updates <= places:
        return ""
    return f"{updates} updates for {places} places along axis {axis}"


MATCHERS: dict[str, Callable[[NodeFacts], str]] = {
    "gather-narrow": _narrow_indices,
    "scatter-narrow": _narrow_indices,
    "scatter-more": _scatter_more,
    "reshape-allowzero": _reshape_allowzero,
    "gemm-without-c": _gemm_without_c,
    "mvn-before-activation": _mvn_before_activation,
    "matmul-rank": _matmul_rank,
    "rank": _rank,
    "quantize-axis": _quantize_axis,
    "dequantize-axis-omitted": _dequantize_axis_omitted,
    "split-empty-output": _split_empty,
    "convtranspose-same": _convtranspose_same,
    "convtranspose-output-padding": _convtranspose_output_padding,
    "qlinearmatmul-half": _half_scales,
    "resize-aspect": _resize_aspect,
    "optional-without-input": _optional_without_input,
    "squeeze-shared": _squeeze_shared,
    "quantize-zero-point": _no_zero_point,
    "gridsample-rank": _grid_sample_rank,
}
"""Quirk id -> matcher."""
