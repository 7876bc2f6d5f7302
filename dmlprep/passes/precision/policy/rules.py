"""The rules for nodes that stay in FP32, each with a reason. How to add a rule: ``docs/add-an-fp16-rule.md``.

There are three policies. ``fast`` keeps nodes that have no FP16 form, would make the file invalid, or always go wrong.
``balanced`` also keeps nodes that go wrong in FP16 with usual values, ``safe`` also those that go wrong with some
values. The target's data list these faults of FP16 (``target.precision``); the module with a fault's name finds its
nodes.
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
    """The reason why a node stays in FP32: the rule's name and a clause. ``firm``: users cannot overrule it."""

    rule: str
    text: str
    firm: bool = False


_LEVEL: dict[str, Level] = {"always": "fast", "usual": "balanced", "by value": "safe"}
"""Map from when a fault occurs to the least strict policy that keeps its nodes. Other faults keep no node."""


@dataclass(frozen=True)
class Rule:
    """A rule for nodes that stay in FP32.

    Attributes:
        name: the name in records and in ``docs/precision.md``; for a rule from the target's data, the fault's id.
        level: the least strict policy (fast, balanced, safe) at which the rule applies.
        firm: whether users cannot overrule the rule: there is no FP16 form, or the model itself casts to FP32.
        why: the reason for the rule, as a clause.
        finds: yields the nodes to which the rule applies, each with a clause.
        fault: the row of the target's data, with numbers and sources; ``None`` for rules of ``forms``.
    """

    name: str
    level: Level
    firm: bool
    why: str
    finds: Callable[[View], NodeReasons]
    fault: PrecisionFault | None = None


_FORMS: tuple[Rule, ...] = (
    Rule("no-fp16-type", "fast", True, "the operator's schema at this opset has no FP16", no_fp16_type),
    Rule("not-a-tensor", "fast", True, "no Cast converts a sequence or an optional", not_a_tensor),
    Rule("no-fp16-kernel", "fast", True, "DirectML has no FP16 kernel for it", no_fp16_kernel),
    Rule("own-island", "fast", True, "the model itself casts FP16 to FP32 here", own_island),
)
"""Rules of ``forms``, which apply to every target."""

Finder = Callable[[View, PrecisionFault], NodeReasons]


def _finder(fault: PrecisionFault) -> Finder:
    """Return ``find`` of the module with the fault's name; without one, a finder of all nodes of its operators."""
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
    """The rules for a target's release; with ``None``, or a target without a release, those of all known releases."""
    return (*_FORMS, *(_rule(fault) for fault in precision_faults(target) if fault.when in _LEVEL))


def _rule(fault: PrecisionFault) -> Rule:
    finder = _finder(fault)
    return Rule(fault.id, _LEVEL[fault.when], False, fault.why, lambda view: finder(view, fault), fault)


RULES: tuple[Rule, ...] = rules_for(None)
"""The rules for all known releases."""


def keep_by_policy(view: View, level: Level) -> dict[ir.Node, Reason]:
    """Return the nodes that the policy ``level`` keeps in FP32, each with its reason.

    If several rules find a node, the first firm rule gives the reason, otherwise the first rule.
    """
    reasons: dict[ir.Node, Reason] = {}
    for rule in rules_for(view.target):
        if LEVELS.index(rule.level) > LEVELS.index(level):
            continue
        for node, text in rule.finds(view):
            if node not in reasons or (rule.firm and not reasons[node].firm):
                reasons[node] = Reason(rule.name, text, rule.firm)
    return reasons
