"""The policy: small rules that each say which nodes stay in FP32, and why.

``fast`` keeps only what has no FP16 form or makes a file that does not load; ``balanced`` also what goes wrong in FP16
with the values that models have; ``safe`` also what goes wrong with some. What goes wrong is the target's to say
(``target.precision``), where it lies in a graph ``precision.regions``'s; here is decided at which level it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from dmlprep.precision import regions, scales
from dmlprep.precision.variances import variances
from dmlprep.precision.view import View
from dmlprep.targets import Target
from dmlprep.targets.precision import PrecisionFault, precision_faults

__all__ = ["LEVELS", "RULES", "Level", "Reason", "Rule", "keep_by_policy", "rules_for"]

Level = Literal["fast", "balanced", "safe"]
LEVELS: tuple[Level, ...] = ("fast", "balanced", "safe")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a node stays in FP32: the rule's name, a clause, and whether a user may overrule it."""

    rule: str
    text: str
    firm: bool = False


_LEVEL: dict[str, Level] = {"always": "fast", "usual": "balanced", "by value": "safe"}
"""From which policy on a fault of the target counts, by when it goes wrong. Others are known, and keep nothing."""


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        name: for records and for ``docs/precision.md``; a fault's id where the target's data make the rule.
        level: from which policy on it holds.
        firm: it cannot be overruled: there is no FP16 form.
        why: what goes wrong in FP16.
        finds: the nodes it concerns, each with a clause.
        fault: the row of the target's data, with numbers and sources; ``None`` for what schemas and kernels say.
    """

    name: str
    level: Level
    firm: bool
    why: str
    finds: Callable[[View], Iterator[tuple[ir.Node, str]]]
    fault: PrecisionFault | None = None


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


_FORMS: tuple[Rule, ...] = (
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
)
"""Rules that follow from schemas, kernels and the model itself."""

Finder = Callable[[View, PrecisionFault], Iterator[tuple[ir.Node, str]]]


def _operators(view: View, fault: PrecisionFault) -> Iterator[tuple[ir.Node, str]]:
    wanted = frozenset(fault.ops)
    for node in view.order:
        if node.op_type in wanted and view.is_float(node):
            yield node, node.op_type


def _stretch(find: Callable[[View], Iterator[tuple[ir.Node, str]]]) -> Finder:
    return lambda view, fault: find(view)


def _long_axis(view: View, fault: PrecisionFault) -> Iterator[tuple[ir.Node, str]]:
    for node, _ in _operators(view, fault):
        shape = node.inputs[0].shape if node.inputs[0] is not None else None
        axis = node.attributes.get("axis")
        place = axis.as_int() if axis is not None else -1
        if shape is None or not -len(shape) <= place < len(shape):
            continue
        size = shape[place]
        if isinstance(size, int) and size > fault.limits["axis"]:
            yield node, f"it sums {size} exponentials"


_FINDERS: dict[str, Finder] = {
    "cpu-crash": _stretch(regions.crashing_transposes),
    "cpu-refuses": _stretch(regions.refused_squares),
    "quantised": _stretch(regions.quantised),
    "integers-in-floats": _stretch(regions.integers),
    "log-sum-exp": _stretch(regions.log_sums),
    "phase": _stretch(regions.phases),
    "mean-of-squares": _stretch(regions.squares),
    "variance-of-means": _stretch(variances),
    "integer-sums": _stretch(scales.integer_sums),
    "long-sum": _stretch(scales.long_sums),
    "carried-sum": _stretch(scales.carried_sums),
    "coordinates": _stretch(regions.coordinates),
    "long-softmax": _long_axis,
}
"""Fault -> where it lies in a graph. Any other lies in every node of its operators."""


def rules_for(target: Target | None) -> tuple[Rule, ...]:
    """The rules for a target's release; for every release known where ``target`` names none."""
    return (*_FORMS, *(_rule(fault) for fault in precision_faults(target) if fault.when in _LEVEL))


def _rule(fault: PrecisionFault) -> Rule:
    finder = _FINDERS.get(fault.id, _operators)
    return Rule(fault.id, _LEVEL[fault.when], False, fault.why, lambda view: finder(view, fault), fault)


RULES: tuple[Rule, ...] = rules_for(None)
"""Every rule known."""


def keep_by_policy(view: View, level: Level) -> dict[ir.Node, Reason]:
    """Apply the rules of a policy; the first rule that finds a node gives its reason."""
    found: dict[ir.Node, Reason] = {}
    for rule in rules_for(view.target):
        if LEVELS.index(rule.level) > LEVELS.index(level):
            continue
        for node, text in rule.finds(view):
            if node not in found or (rule.firm and not found[node].firm):
                found[node] = Reason(rule.name, text, rule.firm)
    return found
