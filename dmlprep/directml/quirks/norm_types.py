"""A normalization with a Cast inside or before it, which ONNX Runtime fuses into a LayerNormalization of two types.

LayerNormFusion omits a Cast before the mean that only the normalization reads, and a Cast before the scale. From opset
17 on, LayerNormalization needs one type for data, scale and bias. At each opset, it needs floats.
"""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from dmlprep.directml.quirks.declaring import ORT_SOURCE, Edit, NodeFacts, Quirk
from dmlprep.directml.quirks.layer_norms import fused_norm, vector
from dmlprep.directml.quirks.patterns import scalar
from dmlprep.graph.rewriting.builder import remove_unread

_FLOATS = ("float", "float16")

_CAST = 9
"""The first version of Cast that ONNX Runtime omits."""

_NEWER_CAST = 21
"""The first version of Cast that ONNX Runtime omits only from 1.25 on."""


def two_types(div: NodeFacts) -> str:
    """Return the reason, if ONNX Runtime fuses the normalization around a Div with two types; empty otherwise."""
    norm = fused_norm(div)
    data = norm.mean.input(0) if norm is not None else None
    mean, scale = (norm.mean.output(), norm.scaled.output()) if norm is not None else (None, None)
    if data is None or mean is None or scale is None:
        return ""
    cast = data.producer
    omits = cast is not None and cast.key == "Cast" and cast.since >= _CAST and not data.graph_output
    if cast is not None and omits and len(data.consumers) == len(mean.consumers) + 1:
        data = cast.required()
    if data.type == scale.type or (div.opset < 17 and data.type in _FLOATS):
        return ""
    return f"ONNX Runtime fuses this normalization with data of type {data.type} and a scale of type {scale.type}"


def write_norm(facts: NodeFacts, edit: Edit) -> str:
    """Write LayerNormalization in FP32."""
    norm = fused_norm(facts)
    assert norm is not None  # of a match
    epsilon = next((number for v in norm.moved.inputs if (number := scalar(v)) is not None), None)
    if facts.opset < 17 or epsilon is None or scalar(norm.power.input(1)) != 2.0:
        return "its opset is below 17, its epsilon is not constant, or its exponent is not 2"
    data, result = norm.mean.required(), norm.last.output()
    assert data.shape is not None  # the axis of its mean is known
    assert result is not None
    operands = [(norm.mean, 0), *((n, i) for n in (norm.scaled, norm.last) if (i := vector(n)) is not None)]
    if any(n.required(i).shape != data.shape[-1:] for n, i in operands[1:]) or not isinstance(data.shape[-1], int):
        return "the sizes of its data are unknown, or scale and bias have other sizes"
    if any(n.required(i).type not in _FLOATS for n, i in operands):
        return "its types are neither FP32 nor FP16"
    anchor, old = edit.at(norm.last.ir), norm.last.ir.outputs[0]
    inputs = [anchor.single(edit.at(n.ir).input(i), n.required(i).type) for n, i in operands]
    attributes: dict[str, int | float] = {"axis": -1, "epsilon": epsilon}
    value = anchor.before("LayerNormalization", inputs, attributes, dtype=ir.DataType.FLOAT, shape=data.shape)
    if result.type != "float":
        value = anchor.before("Cast", [value], {"to": int(ir.DataType.FLOAT16)}, like=old, shape=data.shape)
    anchor.become(value)
    remove_unread(norm.scaled.ir)
    return ""


NORM_TYPES = Quirk(
    id="norm-types",
    code="DP695",
    title="a normalization that ONNX Runtime fuses with two types",
    ops=("Div",),
    outcome="create fails",
    sources=(f"{ORT_SOURCE}onnxruntime/core/optimizer/layer_norm_fusion.cc",),
    matches=lambda node: two_types(node) if node.opset < _NEWER_CAST else "",
    rewrite=write_norm,
)

NORM_TYPES_21 = replace(
    NORM_TYPES, first="1.25", matches=lambda node: two_types(node) if node.opset >= _NEWER_CAST else ""
)
