"""The rules: each finds nodes that stay in FP32, with a reason. How to add one: ``docs/add-an-fp16-rule.md``.

``fast`` keeps only nodes that have no FP16 form or would make the file invalid. ``balanced`` also keeps nodes that go
wrong in FP16 with usual values; ``safe`` also those that go wrong with some values. The target's data list the faults
(``target.precision``); the module with a fault's name finds it in a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Literal

import onnx_ir as ir

from dmlprep.directml.targets import Target
from dmlprep.directml.targets.precision import PrecisionFault, precision_faults
from dmlprep.passes.precision.policy.forms import no_fp16_kernel, no_fp16_type, not_a_tensor, own_island
from dmlprep.passes.precision.view import NodeReasons, View

Level = Literal["fast", "balanced", "safe"]
LEVELS: tuple[Level, ...] = ("fast", "balanced", "safe")


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason why a node stays in FP32: the rule's name, a clause, and whether a user may overrule it."""

    rule: str
    text: str
    firm: bool = False


_LEVEL: dict[str, Level] = {"always": "fast", "usual": "balanced", "by value": "safe"}
"""The lowest policy at which a fault of the target counts, by when it occurs. Other faults keep no node."""


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        name: for records and for ``docs/precision.md``; a fault's id where the rule comes from the target's data.
        level: the lowest policy at which it applies.
        firm: whether users cannot overrule it, because there is no FP16 form.
        finds: returns the nodes that it applies to, each with a clause.
        fault: the row of the target's data, with numbers and sources; ``None`` for rules from schemas and kernels.
    """

    name: str
    level: Level
    firm: bool
    why: str
    finds: Callable[[View], NodeReasons]
    fault: PrecisionFault | None = None


_FORMS: tuple[Rule, ...] = (
    Rule("no-fp16-type", "fast", True, "the operator's schema at this opset has no FP16", no_fp16_type),
    Rule("not-a-tensor", "fast", True, "sequences and optionals cannot be cast where they cross", not_a_tensor),
    Rule("no-fp16-kernel", "fast", True, "the target's kernel table has no FP16 for it", no_fp16_kernel),
    Rule("own-island", "fast", True, "the model itself casts FP16 up to FP32 here", own_island),
)
"""Rules that follow from schemas, kernels and the model itself."""

Finder = Callable[[View, PrecisionFault], NodeReasons]


def _finder(fault: PrecisionFault) -> Finder:
    """``find`` of the fault's module; without such a module, every node of the fault's operators."""
    module = f"{__package__}.{fault.id.replace('-', '_')}"
    if find_spec(module) is None:
        return _operators
    finder: Finder = import_module(module).find
    return finder


def _operators(view: View, fault: PrecisionFault) -> NodeReasons:
    for node in view.order:
        if node.op_type in fault.ops and view.is_float(node):
            yield node, node.op_type


def rules_for(target: Target | None) -> tuple[Rule, ...]:
    """The rules for a target's release; for all known releases where ``target`` names none."""
    return (*_FORMS, *(_rule(fault) for fault in precision_faults(target) if fault.when in _LEVEL))


def _rule(fault: PrecisionFault) -> Rule:
    finder = _finder(fault)
    return Rule(fault.id, _LEVEL[fault.when], False, fault.why, lambda view: finder(view, fault), fault)


RULES: tuple[Rule, ...] = rules_for(None)
"""Every known rule."""


def keep_by_policy(view: View, level: Level) -> dict[ir.Node, Reason]:
    """Apply the rules of a policy; the first rule that finds a node gives its reason."""
    reasons: dict[ir.Node, Reason] = {}
    for rule in rules_for(view.target):
        if LEVELS.index(rule.level) > LEVELS.index(level):
            continue
        for node, text in rule.finds(view):
            if node not in reasons or (rule.firm and not reasons[node].firm):
                reasons[node] = Reason(rule.name, text, rule.firm)
    return reasons
