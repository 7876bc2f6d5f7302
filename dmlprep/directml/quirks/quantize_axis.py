"""QuantizeLinear and DequantizeLinear of opset 21 per axis, where the axis is not the last."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.quirk import MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts
from dmlprep.graph.model.constants import held_tensor

_WHOLE = {"int8", "uint8", "int16", "uint16", "int32"}


_EXACT = {"int8", "uint8", "int16", "uint16"}
"""Types whose differences are exact in FP32."""

_WIDER = {"int4": "int8", "uint4": "uint8"}
"""Types of four bits, of which there is no Cast on DirectML, and up to ONNX Runtime 1.21 none at all."""


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


def _matches(node: NodeFacts) -> str:
    axis = per_axis(node)
    x = node.input(0)
    if node.since < 21 or axis is None or x is None or x.rank is None or axis == x.rank - 1:
        return ""  # the kernels of opset 13 and 19 are right at every axis
    return f"per axis {axis} of rank {x.rank}"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """The arithmetic: ONNX Runtime's optimizer removes a Transpose to the last axis, which the kernel does right."""
    axis, x = per_axis(facts), facts.input(0)
    if axis is None or x is None or x.rank is None:
        return "its axis or rank is not known"
    trailing = x.rank - axis - 1
    return rewrite(facts, edit, Layout(scale=(-1, *[1] * trailing) if trailing else ()))


@dataclass(frozen=True)
class Layout:
    """How scales and data must lie for plain arithmetic to broadcast them.

    Attributes:
        data: shape of the data; empty where it stays.
        scale: shape of scale and zero point; empty where it stays.
        result: shape of the result; empty where it stays.
    """

    data: tuple[int, ...] = ()
    scale: tuple[int, ...] = ()
    result: tuple[int, ...] = ()

    def single(self, edit: Edit, value: ir.Value, kind: str, shape: tuple[int, ...]) -> ir.Value:
        """``value`` in FP32 and in ``shape``."""
        return reshaped(edit, edit.single(value, kind), shape)


def reshaped(edit: Edit, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    """``value`` in FP32 in another shape; itself where there is none."""
    if not shape:
        return value
    return edit.before("Reshape", [value, edit.integers(shape, "along")], dtype=ir.DataType.FLOAT)


def rewrite(facts: NodeFacts, edit: Edit, layout: Layout) -> str:
    """Write the arithmetic of the operator, in FP32, as ONNX defines it."""
    return (_quantize if facts.op == "QuantizeLinear" else _dequantize)(facts, edit, layout)


def _widen(edit: Edit) -> str:
    """Store the data and the zero point of a DequantizeLinear, constants of four bits, in eight; or why not."""
    places = [index for index in (0, 2) if index < len(edit.node.inputs) and edit.node.inputs[index] is not None]
    tensors = [held_tensor(edit.node.inputs[index]) for index in places]
    found = [tensor for tensor in tensors if tensor is not None]
    if len(found) < len(places) or any(tensor.dtype.name.lower() not in _WIDER for tensor in found):
        return "data or zero point of four bits is not constant"
    before = list(edit.node.inputs)
    for index, tensor in zip(places, found, strict=True):
        wide = ir.DataType[_WIDER[tensor.dtype.name.lower()].upper()]
        edit.set_input(index, edit.initializer(_wider(tensor, wide), "wide"))
    edit.forget(before)
    return ""


def _wider(tensor: ir.TensorProtocol, wide: ir.DataType) -> ir.TensorProtocol:
    """The same numbers in a wider type, which stay in their file until they are written."""
    shape = ir.Shape(tensor.shape.numpy())
    return ir.LazyTensor(lambda: ir.Tensor(tensor.numpy().astype(wide.numpy())), dtype=wide, shape=shape)


def _dequantize(facts: NodeFacts, edit: Edit, layout: Layout) -> str:
    """(x - zero point) * scale."""
    x, scale, zero = facts.input(0), facts.input(1), facts.input(2)
    out = facts.output()
    data, factor = edit.node.inputs[:2]
    if x is None or scale is None or out is None or data is None or factor is None:
        return "an input is missing"
    kind = x.type
    if kind in _WIDER:
        if why := _widen(edit):
            return why
        kind, data = _WIDER[kind], edit.node.inputs[0]
        assert data is not None
    if kind not in _WHOLE or (zero is not None and kind not in _EXACT):
        return f"{kind} has no exact form in FP32"
    old = edit.node.outputs[0]
    value = layout.single(edit, data, kind, layout.data)
    if zero is not None and edit.node.inputs[2] is not None:
        shift = layout.single(edit, edit.node.inputs[2], kind, layout.scale)
        value = edit.before("Sub", [value, shift], dtype=ir.DataType.FLOAT)
    scales = layout.single(edit, factor, scale.type, layout.scale)
    value = reshaped(edit, edit.before("Mul", [value, scales], dtype=ir.DataType.FLOAT), layout.result)
    if out.type == "float16":
        value = edit.before("Cast", [value], {"to": int(ir.DataType.FLOAT16)}, like=old)
    return edit.become(value)


def _quantize(facts: NodeFacts, edit: Edit, layout: Layout) -> str:
    """saturate(round(x / scale) + zero point), rounded to nearest even."""
    x, scale, zero, out = facts.input(0), facts.input(1), facts.input(2), facts.output()
    data, factor = edit.node.inputs[:2]
    if x is None or scale is None or out is None or data is None or factor is None:
        return "an input is missing"
    if out.type not in _EXACT or x.type not in ("float", "float16"):
        return f"{x.type} to {out.type} has no exact form in FP32"
    if facts.opset >= 22:
        return "DirectML has no kernel for Round at this opset: lower it to 21"
    old = edit.node.outputs[0]
    limits = np.iinfo(ir.DataType[out.type.upper()].numpy())
    single = ir.DataType.FLOAT
    scaled = [layout.single(edit, data, x.type, layout.data), layout.single(edit, factor, scale.type, layout.scale)]
    value = edit.before("Div", scaled, dtype=single)
    value = edit.before("Round", [value], dtype=single)
    if zero is not None and edit.node.inputs[2] is not None:
        shift = layout.single(edit, edit.node.inputs[2], zero.type, layout.scale)
        value = edit.before("Add", [value, shift], dtype=single)
    low = edit.constant(np.array(limits.min, np.float32), "lowest")
    high = edit.constant(np.array(limits.max, np.float32), "highest")
    value = reshaped(edit, edit.before("Clip", [value, low, high], dtype=single), layout.result)
    return edit.become(edit.before("Cast", [value], {"to": int(ir.DataType[out.type.upper()])}, like=old))


QUIRK = Quirk(
    id="quantize-axis",
    code="DP606",
    title="per-axis quantization at opset 21",
    ops=("QuantizeLinear", "DequantizeLinear"),
    outcome="run fails",
    first="1.20",
    last="1.24",
    sources=(MEASURED,),
    matches=_matches,
    rewrite=_rewrite,
)
