"""Decide which nodes compute in FP16 and which stay in FP32, before the model is changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from dmlprep.graph.analysis.operators import MOVES
from dmlprep.graph.model.walk import attribute_graphs
from dmlprep.passes.precision.convert.constants import NEEDS_FP64, Constants, judge
from dmlprep.passes.precision.policy.rules import Level, Reason, keep_by_policy
from dmlprep.passes.precision.view import UNTYPED, View

KeepIo = bool | Collection[str]
"""True if all graph inputs and outputs keep their types, false if none does; or the names of those that do."""


@dataclass
class Plan:
    """The decisions about the model of ``view``.

    Attributes:
        full: nodes that stay in FP32 (with the rule ``NEEDS_FP64``, in FP64), each with the reason.
        constants: the decisions about constants.
        keep_io: which graph inputs and outputs keep their types.
        half_weights: the argument of ``convert``, which sets it after the plan is made.
    """

    view: View
    full: dict[ir.Node, Reason]
    constants: Constants
    keep_io: KeepIo
    half_weights: bool = False

    def keeps(self, value: ir.Value) -> bool:
        """Return whether a graph input or output keeps its type; false if it becomes FP16."""
        return self.keep_io if isinstance(self.keep_io, bool) else value.name in self.keep_io


def make_plan(
    view: View,
    *,
    level: Level = "balanced",
    keep: Mapping[int, str] | None = None,
    convert: Mapping[int, str] | None = None,
    keep_io: KeepIo = True,
    known: Constants | None = None,
) -> Plan:
    """Decide for every node and constant of a model whether it stays in FP32. The model is unchanged.

    Args:
        keep: ``id(node)`` -> why the user keeps the node in FP32.
        convert: ``id(node)`` -> why the user converts the node against the policy. It still stays in FP32 if a firm
            rule applies, and in FP64 if a constant needs that.
        known: the constants of an earlier plan of the same model, whose tensors are then not read again.
    """
    keep, convert = keep or {}, convert or {}
    full = {
        node: reason for node, reason in keep_by_policy(view, level).items() if reason.firm or id(node) not in convert
    }
    for node in view.order:
        if id(node) in keep:
            full.setdefault(node, Reason("user", keep[id(node)]))
    _into_bodies(view, full)
    constants = judge(view, full, known)
    for node, reason in constants.keep.items():
        if reason.rule == NEEDS_FP64:
            full[node] = reason
        elif id(node) not in convert and node.op_type not in ("Constant", "Cast"):
            full.setdefault(node, reason)
    _compress_first(view, full)
    plan = Plan(view, full, constants, keep_io)
    _follow(plan)
    return plan


def _into_bodies(view: View, full: dict[ir.Node, Reason]) -> None:
    """Keep in FP32 the nodes in the subgraphs (bodies) of a node that the user, or the model itself, keeps in FP32."""
    for node in view.order:
        reason = full.get(node)
        if reason is not None and reason.rule in ("user", "own-island"):
            inside = Reason(reason.rule, f"inside {node.name or node.op_type}: {reason.text}")
            for _, graph in attribute_graphs(node):
                for inner in graph:
                    full.setdefault(inner, inside)


COMPRESSES = frozenset({"Sqrt", "Log", "Tanh", "Sigmoid", "Erf", "Atan", "Sign", "Softsign"})
"""Operators whose result has a smaller range than their operand. They compute in FP32 after a node that the user keeps
in FP32, so that the cast to FP16 comes after them."""


def _compress_first(view: View, full: dict[ir.Node, Reason]) -> None:
    for node in view.order:
        if node.op_type in COMPRESSES and node not in full and not node.domain:
            value = node.inputs[0]
            producer = value.producer() if value is not None else None
            if producer is not None and producer in full and view.wide(value) and full[producer].rule == "user":
                full[node] = Reason("before-the-cast", "it brings a value held in FP32 into the range of FP16")


_FILLS = frozenset({"ConstantOfShape", "EyeLike"})


def _follow(plan: Plan) -> None:
    """Keep in FP32 the nodes that only move or fill values between FP32 nodes: casts around them would lose digits.

    They are added to ``plan.full``.
    """
    view, full = plan.view, plan.full

    def fed_by(node: ir.Node) -> list[ir.Value]:
        return [v for _, v, _ in view.wide_inputs(node) if view.constant(v) is None]

    wide: set[ir.Value] = {v for v in view.model.graph.inputs if view.wide(v) and plan.keeps(v)}
    for node in full:
        wide.update(node.outputs)
    moved: list[ir.Node] = []
    for node in view.order:
        if node in full or node.domain:
            continue
        fills = node.op_type in _FILLS and view.is_float(node)
        fed = fed_by(node) if node.op_type in MOVES else []
        if fills or (fed and all(v in wide for v in fed)):
            moved.append(node)
            wide.update(node.outputs)
    main = set(view.model.graph.outputs)
    stay = set(moved)
    for node in reversed(moved):
        for value in node.outputs:
            readers = [n for n in value.consumers() if n.op_type not in UNTYPED]
            leaves = value.is_graph_output() and not (value in main and plan.keeps(value))
            if leaves or any(n not in full and n not in stay for n in readers):
                stay.discard(node)
    for node in moved:
        # its producer may have been released itself
        fed = fed_by(node)
        used = any(n in full or n in stay for v in node.outputs for n in v.consumers())
        if node in stay and (fed or used) and all(v.producer() is None or v.producer() in full for v in fed):
            full[node] = Reason("between", "it only moves values between FP32 nodes, so a cast would not help")
