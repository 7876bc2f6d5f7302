"""QuantizeLinear and DequantizeLinear of opset 21 with an axis that is not the last, or that the data does not have."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.declaring import Edit, Match, NodeFacts, Quirk
from dmlprep.graph.model.constants import held_tensor

_WHOLE = {"int8", "uint8", "int16", "uint16", "int32"}


_EXACT = {"int8", "uint8", "int16", "uint16"}
"""Types whose differences are exact in FP32."""

_WIDER = {"int4": "int8", "uint4": "uint8"}
"""Type of four bits -> type of eight bits. DirectML has no Cast from four bits, nor has ONNX Runtime up to 1.21."""


def per_axis(node: NodeFacts) -> int | None:
    """The axis (0 or more) of a per-axis QuantizeLinear or DequantizeLinear.

    ``None`` with a single scale or with blocks, or if a rank is unknown.
    """
    rank, scale = node.rank(0), node.input(1)
    if rank is None or scale is None or scale.rank != 1 or scale.size == 1 or node.attribute("block_size", 0):
        return None
    axis = int(node.attribute("axis", 1))
    return axis + rank if axis < 0 else axis


def _matches(node: NodeFacts) -> str:
    axis, rank = per_axis(node), node.rank(0) or 0
    if node.since < 21 or axis is None or axis == rank - 1:
        return ""  # the kernels of opset 13 and 19 are right at every axis
    return f"it quantizes along axis {axis} of {rank}, not the last"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Replace the node by arithmetic in FP32.

    A Transpose to the last axis does not help: ONNX Runtime removes it.
    """
    trailing = (facts.rank(0) or 0) - (per_axis(facts) or 0) - 1
    return rewrite(facts, edit, Layout(scale=(-1, *[1] * trailing) if trailing else ()))


@dataclass(frozen=True)
class Layout:
    """The shapes of data, of scale and zero point, and of the final result, in arithmetic with broadcasting.

    An empty shape means that the value is not reshaped.
    """

    data: tuple[int, ...] = ()
    scale: tuple[int, ...] = ()
    result: tuple[int, ...] = ()

    def single(self, edit: Edit, value: ir.Value, kind: str, shape: tuple[int, ...]) -> ir.Value:
        """Return ``value``, whose element type is ``kind``, in FP32 and in ``shape``."""
        return reshaped(edit, edit.single(value, kind), shape)


def reshaped(edit: Edit, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    """Return ``value`` (in FP32) after a new Reshape to ``shape``, or ``value`` itself for an empty shape."""
    if not shape:
        return value
    return edit.before("Reshape", [value, edit.integers(shape, "along")], dtype=ir.DataType.FLOAT)


def rewrite(facts: NodeFacts, edit: Edit, layout: Layout) -> str:
    """Replace the node by the operator's arithmetic in FP32, as ONNX defines it; return ``""`` or why not."""
    return (_quantize if facts.op == "QuantizeLinear" else _dequantize)(facts, edit, layout)


def _widen(edit: Edit) -> str:
    """Store constant data and zero point of a DequantizeLinear in 8 instead of 4 bits; return ``""`` or why not."""
    tensors = {index: held_tensor(edit.optional(index)) for index in (0, 2) if edit.optional(index) is not None}
    if any(tensor is None or tensor.dtype.name.lower() not in _WIDER for tensor in tensors.values()):
        return "data or zero point of four bits is not constant"
    before = list(edit.node.inputs)
    for index, tensor in tensors.items():
        assert tensor is not None
        wide = ir.DataType[_WIDER[tensor.dtype.name.lower()].upper()]
        edit.set_input(index, edit.initializer(_wider(tensor, wide), "wide"))
    edit.forget(before)
    return ""


def _wider(tensor: ir.TensorProtocol, wide: ir.DataType) -> ir.TensorProtocol:
    """The same numbers in a wider type; they stay in their file until they are written."""
    shape = ir.Shape(tensor.shape.numpy())
    return ir.LazyTensor(lambda: ir.Tensor(tensor.numpy().astype(wide.numpy())), dtype=wide, shape=shape)


def _dequantize(facts: NodeFacts, edit: Edit, layout: Layout) -> str:
    """Replace a DequantizeLinear by (x - zero point) * scale; return ``""`` or why not."""
    kind, zero, out = facts.required().type, facts.input(2), facts.output()
    if kind in _WIDER:
        if why := _widen(edit):
            return why
        kind = _WIDER[kind]
    if kind not in _WHOLE or (zero is not None and kind not in _EXACT):
        return f"{kind} has no exact form in FP32"
    value = layout.single(edit, edit.input(), kind, layout.data)
    if zero is not None:
        shift = layout.single(edit, edit.input(2), kind, layout.scale)
        value = edit.before("Sub", [value, shift], dtype=ir.DataType.FLOAT)
    scales = layout.single(edit, edit.input(1), facts.required(1).type, layout.scale)
    value = reshaped(edit, edit.before("Mul", [value, scales], dtype=ir.DataType.FLOAT), layout.result)
    if out is not None and out.type == "float16":
        value = edit.before("Cast", [value], {"to": int(ir.DataType.FLOAT16)}, like=edit.output)
    return edit.become(value)


def _quantize(facts: NodeFacts, edit: Edit, layout: Layout) -> str:
    """Replace a QuantizeLinear by saturate(round(x / scale) + zero point), halves to even; return ``""`` or why not."""
    x, zero, out = facts.required(), facts.input(2), facts.output()
    if out is None or out.type not in _EXACT or x.type not in ("float", "float16"):
        return f"{x.type} to {out.type if out is not None else 'nothing'} has no exact form in FP32"
    if facts.opset >= 22:
        return "DirectML has no kernel for Round at this opset: lower it to 21"
    limits, single = np.iinfo(out.numpy_type), ir.DataType.FLOAT
    scaled = [
        layout.single(edit, edit.input(), x.type, layout.data),
        layout.single(edit, edit.input(1), facts.required(1).type, layout.scale),
    ]
    value = edit.before("Round", [edit.before("Div", scaled, dtype=single)], dtype=single)
    if zero is not None:
        value = edit.before("Add", [value, layout.single(edit, edit.input(2), zero.type, layout.scale)], dtype=single)
    low = edit.constant(np.array(limits.min, np.float32), "lowest")
    high = edit.constant(np.array(limits.max, np.float32), "highest")
    value = reshaped(edit, edit.before("Clip", [value, low, high], dtype=single), layout.result)
    return edit.become(edit.before("Cast", [value], {"to": int(ir.DataType[out.type.upper()])}, like=edit.output))


QUIRK = Quirk(
    id="quantize-axis",
    code="DP606",
    title="per-axis quantization at opset 21",
    ops=("QuantizeLinear", "DequantizeLinear"),
    outcome="run fails",
    first="1.20",
    last="1.24",
    matches=_matches,
    rewrite=_rewrite,
)


_TYPES = {"int8", "uint8", "int32", "int4", "uint4"}
"""Types of quantized data for which the rewrite works."""


def _matches_missing(node: NodeFacts) -> str | Match:
    """The reason, if the scale has the shape [1] and the data does not have the node's axis; empty otherwise.

    Vectors lack axis 1, the default.
    """
    x, scale = node.input(0), node.input(1)
    quantized = node.output() if node.op == "QuantizeLinear" else x
    if node.since < 13 or quantized is None or quantized.type not in _TYPES:
        return ""
    if x is None or x.rank is None or scale is None or scale.shape != (1,):
        return ""
    axis = int(node.attribute("axis", 1))
    if -x.rank <= axis < x.rank or x.shape == (1,) or node.attribute("block_size", 0):
        return ""
    text = f"axis {axis} and a scale of shape [1], on"
    if x.rank == 1 and x.size is None:
        return Match(f"{text} a vector that might have more than one element", sure=False)
    return f"{text} data of rank {x.rank}"


def _rewrite_missing(facts: NodeFacts, edit: Edit) -> str:
    """Write the scale (and zero point) as a scalar; if they are computed, write axis=0."""
    arrays = [(name, v.array()) for name, v in zip(("scale", "zero_point"), facts.inputs[1:3], strict=False) if v]
    constant = [(name, array) for name, array in arrays if array is not None]
    if len(constant) < len(arrays):
        if not facts.rank(0):
            return "data of rank 0 has no axis, and its scale or zero point is computed"
        edit.set("axis", 0)
        return ""
    for index, (name, array) in enumerate(constant, 1):
        edit.set_input(index, edit.constant(array.reshape(()), name))
    return ""


EARLY = Quirk(
    id="quantize-axis-missing",
    code="DP607",
    title="quantization along an axis that the data does not have",
    ops=("QuantizeLinear", "DequantizeLinear"),
    outcome="create fails",
    last="1.24",
    # Up to 1.24 the kernel of opset 21 is right.
    matches=lambda node: _matches_missing(node) if node.since < 21 else "",
    rewrite=_rewrite_missing,
)

SINCE_25 = replace(EARLY, first="1.25", last=None, matches=_matches_missing)
