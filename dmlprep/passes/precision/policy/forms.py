"""FP16 rules that follow from schemas, the target's kernels and the model itself; each yields nodes with reasons."""

from __future__ import annotations

import onnx_ir as ir

from dmlprep.graph.model.texts import text_of
from dmlprep.graph.model.walk import attribute_graphs
from dmlprep.passes.precision.view import NodeReasons, View

_FP32_BODIES = frozenset({"MeanVarianceNormalization"})
"""Operators whose function body in ONNX has FP32 constants, so that FP16 nodes are invalid. Measured with onnx 1.23.2
over every operator with a body."""

_SEQUENCE_MAKERS = frozenset({"SequenceMap", "SequenceConstruct", "SplitToSequence", "SequenceInsert", "Optional"})

_TYPELESS = frozenset({"Constant", "If", "Loop", "Scan", "Cast", "CastLike"})


def no_fp16_type(view: View) -> NodeReasons:
    """Find floating-point nodes of unknown operators, or whose schema or function body has no FP16."""
    for node in view.order:
        if view.signature(node) is None:
            if view.is_float(node):
                yield node, f"operator {node.domain}::{node.op_type} is unknown to onnx, so it might have no FP16 form"
            continue
        ports = [p for _, _, p in (*view.wide_inputs(node), *view.wide_outputs(node))]
        if ports and not any(p and p.variable and ir.DataType.FLOAT16 in p.floats for p in ports):
            yield node, "ONNX defines it without FP16 at this opset"
        elif ports and node.op_type in _FP32_BODIES:
            yield node, "its function body in ONNX has FP32 constants, so ONNX's checker refuses it in FP16"


def not_a_tensor(view: View) -> NodeReasons:
    """Find nodes that handle sequences, optionals, or values of unknown type."""
    for node in view.order:
        kinds = [view.types.get(v) for v in (*node.inputs, *node.outputs) if v is not None]
        odd = any(k is not None and not isinstance(k, ir.TensorType) for k in kinds)
        if odd or node.op_type in _SEQUENCE_MAKERS:
            yield node, "it handles a sequence or an optional, which no Cast converts"
        elif any(v is not None and view.types.get(v) is None for v in node.inputs) and view.is_float(node):
            yield node, "the type of one of its operands is unknown"


def no_fp16_kernel(view: View) -> NodeReasons:
    """Find nodes that DirectML does not compute in FP16."""
    for node in view.order:
        if node.op_type in _TYPELESS or not view.is_float(node):
            continue
        if not view.on_directml(node):
            yield node, "DirectML has no kernel for it, so it runs on the CPU in FP32"
            continue
        if view.signature(node) is None:
            continue
        if not any(True for _ in view.wide_inputs(node)) and not view.exact_kernel(node):
            # ONNX Runtime inserts casts around nodes on the CPU, but only for FP16 operands.
            yield node, "DirectML has a kernel only of another version, and the CPU's kernel has no FP16 output"
            continue
        if node.op_type in ("ScatterElements", "ScatterND") and text_of(node, "reduction", "none") != "none":
            yield node, "DirectML has no kernel for its reduction, and the CPU's kernel has no FP16 input"
            continue
        ports = [p for _, _, p in (*view.wide_inputs(node), *view.wide_outputs(node)) if p and p.variable]
        halves = [p for p in ports if ir.DataType.FLOAT16 in p.floats]
        if halves and not any(view.half_kernel(node, p.label) for p in halves):
            yield node, "DirectML's kernel does not support FP16"


def own_island(view: View) -> NodeReasons:
    """Find nodes that depend on values which the model itself casts from FP16 to FP32, except stored weights."""
    inside: set[ir.Value] = set()
    island: dict[ir.Node, None] = {}
    size = -1
    while len(inside) > size:  # again where a body returns such a value to its node
        size = len(inside)
        for node in view.order:
            wide = [v for v in node.outputs if view.wide(v)]
            if node.op_type == "Cast":
                kind = view.types.get(node.inputs[0]) if node.inputs[0] is not None else None
                half = isinstance(kind, ir.TensorType) and kind.dtype == ir.DataType.FLOAT16
                stored = view.constant(node.inputs[0]) is not None  # a weight stored in FP16 to save space
                if (half and not stored) or node.inputs[0] in inside:
                    inside.update(wide)
                continue
            handed = any(v in inside for _, graph in attribute_graphs(node) for v in graph.outputs)
            if handed or any(v in inside for v in node.inputs):
                inside.update(wide)
                island.setdefault(node)
    for node in island:
        yield node, "it reads a value that the model casts from FP16 to FP32"
