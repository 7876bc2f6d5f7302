"""The policy: small rules that each say which nodes stay in FP32, and why.

``fast`` keeps only what has no FP16 form or would break; ``balanced`` also what is known to go wrong in FP16;
``safe`` also what may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from dmlprep.precision import regions, scales
from dmlprep.precision.view import View

__all__ = ["LEVELS", "RULES", "Level", "Reason", "Rule", "keep_by_policy"]

Level = Literal["fast", "balanced", "safe"]
LEVELS: tuple[Level, ...] = ("fast", "balanced", "safe")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a node stays in FP32: the rule's name, a clause, and whether a user may overrule it."""

    rule: str
    text: str
    firm: bool = False


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        name: for records and for ``docs/precision.md``.
        level: from which policy on it holds.
        firm: it cannot be overruled: there is no FP16 form.
        why: what goes wrong in FP16, with the source.
        finds: the nodes it concerns, each with a clause.
    """

    name: str
    level: Level
    firm: bool
    why: str
    finds: Callable[[View], Iterator[tuple[ir.Node, str]]]


def _no_half_type(view: View) -> Iterator[tuple[ir.Node, str]]:
    for node in view.order:
        known = view.signature(node)
        if known is None:
            if view.is_float(node):
                yield node, f"operator {node.domain}::{node.op_type} is not known"
            continue
        ports = [p for _, _, p in (*view.wide_inputs(node), *view.wide_outputs(node))]
        if ports and not any(p and p.variable and ir.DataType.FLOAT16 in p.floats for p in ports):
            yield node, "its schema has no FP16"
        elif ports and node.op_type in _FP32_BODIES:
            yield node, "its function body in ONNX holds FP32 constants, so that the checker refuses it in FP16"


_FP32_BODIES = frozenset({"MeanVarianceNormalization"})
"""Measured with onnx 1.23.2 over every operator with a body: versions 9 and 13."""


def _not_tensors(view: View) -> Iterator[tuple[ir.Node, str]]:
    for node in view.order:
        values = [v for v in (*node.inputs, *node.outputs) if v is not None]
        kinds = [view.types.get(v) for v in values]
        odd = any(k is not None and not isinstance(k, ir.TensorType) for k in kinds)
        if odd or node.op_type in _SEQUENCE_MAKERS:
            yield node, "it handles a sequence or an optional"
        elif any(v is not None and view.types.get(v) is None for v in node.inputs) and view.is_float(node):
            yield node, "the type of an operand is not known"


_SEQUENCE_MAKERS = frozenset({"SequenceMap", "SequenceConstruct", "SplitToSequence", "SequenceInsert", "Optional"})


def _no_half_kernel(view: View) -> Iterator[tuple[ir.Node, str]]:
    for node in view.order:
        if node.op_type in _TYPELESS or not view.is_float(node):
            continue
        if not view.on_directml(node):
            yield node, "DirectML has no kernel for it; it runs on the CPU, in FP32"
            continue
        known = view.signature(node)
        if known is None:
            continue
        if not any(True for _ in view.wide_inputs(node)) and not view.exact_kernel(node):
            # ONNX Runtime puts casts around what it gives the CPU, but only behind FP16 operands
            yield node, "DirectML's kernel is of another version, and the CPU's makes no FP16"
            continue
        if node.op_type in ("ScatterElements", "ScatterND") and _reduces(node):
            yield node, "DirectML has no kernel for its reduction, and the CPU's takes no FP16"
            continue
        ports = [p for _, _, p in (*view.wide_inputs(node), *view.wide_outputs(node)) if p and p.variable]
        halves = [p for p in ports if ir.DataType.FLOAT16 in p.floats]
        if halves and not any(view.half_kernel(node, p.label) for p in halves):
            yield node, "DirectML's kernel has no FP16"


def _reduces(node: ir.Node) -> bool:
    reduction = node.attributes.get("reduction")
    return reduction is not None and reduction.as_string() != "none"


_TYPELESS = frozenset({"Constant", "If", "Loop", "Scan", "Cast", "CastLike"})


def _operators(*names: str) -> Callable[[View], Iterator[tuple[ir.Node, str]]]:
    wanted = frozenset(names)

    def find(view: View) -> Iterator[tuple[ir.Node, str]]:
        for node in view.order:
            if node.op_type in wanted and view.is_float(node):
                yield node, node.op_type

    return find


RULES: tuple[Rule, ...] = (
    Rule("no-fp16-type", "fast", True, "the operator's schema at this opset takes no FP16", _no_half_type),
    Rule("not-a-tensor", "fast", True, "sequences and optionals cannot be cast where they cross", _not_tensors),
    Rule("no-fp16-kernel", "fast", True, "the target's kernel table has no FP16 for it", _no_half_kernel),
    Rule(
        "own-island",
        "fast",
        True,
        "the model itself casts FP16 up to FP32 here, so its author wanted FP32",
        regions.own_islands,
    ),
    Rule(
        "recurrent",
        "balanced",
        False,
        "rounding adds up over time steps, DirectML cannot fuse it, and ONNX Runtime's CPU provider crashes when it "
        "loads an FP16 LSTM or GRU (measured, 1.24.4)",
        _operators("LSTM", "GRU", "RNN"),
    ),
    Rule(
        "quantised",
        "balanced",
        False,
        "scales of quantised tensors are exact in FP32, and ONNX Runtime fuses FP32 between them",
        regions.quantised,
    ),
    Rule(
        "integers-in-floats",
        "balanced",
        False,
        "whole numbers above 2048 are not exact in FP16: sizes, positions and indices would change",
        regions.integers,
    ),
    Rule(
        "log-sum-exp",
        "balanced",
        False,
        "Exp overflows FP16 above 11.09; where no maximum is taken off first, the logarithm of the sum is infinite",
        regions.log_sums,
    ),
    Rule("phase", "balanced", False, "Sin and Cos of a position need its digits below 1", regions.phases),
    Rule(
        "mean-of-squares",
        "balanced",
        False,
        "squares of values above 255 overflow FP16; a decomposed LayerNormalization then gives finite zeros "
        "(measured on DirectML, 1.24.4)",
        regions.squares,
    ),
    Rule(
        "sum-of-squares",
        "balanced",
        False,
        "squares of values above 255 overflow FP16",
        _operators("ReduceSumSquare", "ReduceL2", "LpNormalization"),
    ),
    Rule(
        "integer-sums",
        "balanced",
        False,
        "MatMulInteger and ConvInteger give numbers beyond 65504, and the scales that bring them back are tiny",
        scales.integer_sums,
    ),
    Rule("long-sum", "balanced", False, "a sum of 16384 terms or more overflows FP16 at terms of 4", scales.long_sums),
    Rule("running-sum", "balanced", False, "a running sum over a long axis rounds at every step", _operators("CumSum")),
    Rule(
        "needs-16-bit-shaders",
        "balanced",
        False,
        "its FP16 shader needs Native16BitShaderOpsSupported, else the node falls to the CPU (ONNX Runtime, DmlDFT.h "
        "and DmlGridSample.h)",
        _operators("GridSample", "DFT", "STFT"),
    ),
    Rule(
        "coordinates",
        "balanced",
        False,
        "box coordinates above 1024 pixels have steps of a pixel in FP16",
        regions.coordinates,
    ),
    Rule(
        "cpu-crash",
        "balanced",
        False,
        "ONNX Runtime 1.24.4's CPU provider crashes at its default optimisation when it loads this Transpose in FP16 "
        "before a MatMul (NchwcTransformer; measured)",
        regions.crashing_transposes,
    ),
    Rule(
        "normalisation",
        "safe",
        False,
        "DirectML holds the variance in FP16: wrong from a standard deviation of 256 on (measured, 1.24.4)",
        _operators(
            "LayerNormalization",
            "InstanceNormalization",
            "GroupNormalization",
            "MeanVarianceNormalization",
            "RMSNormalization",
            "SimplifiedLayerNormalization",
            "SkipLayerNormalization",
            "SkipSimplifiedLayerNormalization",
            "GroupNorm",
        ),
    ),
    Rule(
        "exponential",
        "safe",
        False,
        "Exp overflows FP16 above 11.09",
        _operators("Exp", "Pow", "Softmax", "LogSoftmax", "ReduceLogSumExp", "ReduceLogSum", "ReduceSum", "ReduceProd"),
    ),
)


def keep_by_policy(view: View, level: Level) -> dict[ir.Node, Reason]:
    """Apply the rules of a policy; the first rule that finds a node gives its reason."""
    found: dict[ir.Node, Reason] = {}
    for rule in RULES:
        if LEVELS.index(rule.level) > LEVELS.index(level):
            continue
        for node, text in rule.finds(view):
            if node not in found or (rule.firm and not found[node].firm):
                found[node] = Reason(rule.name, text, rule.firm)
    return found
