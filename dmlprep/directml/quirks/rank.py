"""Tensors of more than eight dimensions: the rewrite does the same work on fewer, longer dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import onnx_ir as ir

from dmlprep.directml.quirks.declaring import MEASURED, Edit, NodeFacts, Quirk, Value

MAX_RANK = 8
"""The most dimensions of a DirectML tensor: DML_TENSOR_DIMENSION_COUNT_MAX1 (DirectML.h)."""

_RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
"""Operators that keep the order of the elements."""


# fmt: off
_POINTWISE = frozenset({
    "Abs", "Add", "And", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "Ceil", "Clip", "Cos",
    "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "IsInf",
    "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "PRelu",
    "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub",
    "Sum", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
})
# fmt: on
"""Operators that work element by element, with broadcasting."""


def _matches(node: NodeFacts) -> str:
    value = next((v for v in [*node.inputs, *node.outputs] if v is not None and _high(v)), None)
    return "" if value is None else f"{value.name} has rank {value.rank}, DirectML supports {MAX_RANK}"


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Rewrite the node on fewer dimensions, with all nodes that share a value of more than 8 dimensions with it.

    Any tensor with the same elements in the same order can replace such a value. Reshape then does nothing.
    Element-wise operators use operands with merged neighbouring dimensions; Transpose merges dimensions that stay
    neighbours.
    """
    region = _region(facts)
    if isinstance(region, str):
        return region
    plans: list[_Plan] = []
    for node in region:
        plan = _plan(node)
        if isinstance(plan, str):
            return plan
        plans.append(plan)
    stand: dict[str, ir.Value] = {}
    for node, plan in zip(region, plans, strict=True):
        _rewrite_node(node, plan, edit.at(node.ir), stand)
    for node in reversed(region):
        edit.graph.remove(node.ir, safe=True)
    return ""


def _high(value: Value | None) -> bool:
    return value is not None and (value.rank or 0) > MAX_RANK


def _region(start: NodeFacts) -> list[NodeFacts] | str:
    """The nodes connected to ``start`` by values of more than 8 dimensions, in order; or why no rewrite exists."""
    nodes: dict[int, NodeFacts] = {}
    stack = [start]
    while stack:
        node = stack.pop()
        if node.index in nodes:
            continue
        if node.graph != start.graph:
            return "a subgraph reads the tensor"
        nodes[node.index] = node
        for value in [*node.inputs, *node.outputs]:
            if value is None or not _high(value):
                continue
            if value.graph_input or value.graph_output:
                return f"{value.name} is an input or output of the graph"
            if value.initializer or value.producer is None:
                return f"{value.name} is a constant; the step simplify, before fix-quirks, might fold it"
            stack += [value.producer, *value.consumers]
    return [nodes[index] for index in sorted(nodes)]


class _Plan(NamedTuple):
    """The rewrite of a node: the new shape of each operand (``None``: unchanged), and the ``perm`` of a Transpose."""

    operands: Sequence[Sequence[int] | None]
    perm: Sequence[int] = ()


def _plan(node: NodeFacts) -> _Plan | str:
    out = node.output()
    if node.domain or out is None or any(v is not None for v in node.outputs[1:]):
        return f"dmlprep has no form of {node.key} with fewer dimensions"
    if any(v is not None and not v.static for v in [*node.inputs, out]):
        return "its sizes are unknown: pin the free dimensions of the model"
    if node.op in _RESHAPES:
        return _Plan([None])
    if node.op == "Transpose":
        return _transposed(node, out)
    return _merged(node, out) if node.op in _POINTWISE else f"dmlprep has no form of {node.op} with fewer dimensions"


def _transposed(node: NodeFacts, out: Value) -> _Plan | str:
    sizes = node.required().sizes
    perm = list(node.attribute("perm", range(len(sizes) - 1, -1, -1)))
    runs: list[list[int]] = []  # axes of the input that stay neighbours, in the order of the output
    follows = dict(pairwise([axis for axis in range(len(sizes)) if sizes[axis] != 1]))
    for axis in (axis for axis in perm if sizes[axis] != 1):
        if runs and follows.get(runs[-1][-1]) == axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    if len(runs) > MAX_RANK:
        return f"its Transpose needs {len(runs)} dimensions even when neighbours are merged"
    order = sorted(runs)
    return _Plan([[prod(sizes[a] for a in run) for run in order] or [1]], [order.index(run) for run in runs] or [0])


def _merged(node: NodeFacts, out: Value) -> _Plan | str:
    full = out.sizes
    padded = [[1] * (len(full) - len(v.sizes)) + v.sizes for v in node.inputs if v is not None]
    groups: list[tuple[tuple[bool, ...], int]] = []
    for axis, size in enumerate(full):
        if size == 1:
            continue
        pattern = tuple(p[axis] == size for p in padded)
        if groups and groups[-1][0] == pattern:
            groups[-1] = (pattern, groups[-1][1] * size)
        else:
            groups.append((pattern, size))
    if len(groups) > MAX_RANK:
        return f"its operands need {len(groups)} dimensions even when neighbours are merged"
    shapes: list[list[int] | None] = []
    place = 0
    for value in node.inputs:
        if value is None or (value.size == 1 and not _high(value)):
            shapes.append(None)
        else:
            shapes.append([size if pattern[place] else 1 for pattern, size in groups] or [1])
        place += value is not None
    return _Plan(shapes)


def _rewrite_node(node: NodeFacts, plan: _Plan, edit: Edit, stand: dict[str, ir.Value]) -> None:
    out = node.output()
    assert out is not None
    inputs: list[ir.Value | None] = []
    for index, value in enumerate(edit.node.inputs[: len(plan.operands)]):
        facts = node.input(index)
        if value is None or facts is None:
            inputs.append(None)
            continue
        data = stand.get(facts.name, value)
        shape = plan.operands[index]
        inputs.append(data if shape is None else _reshape(edit, data, shape, facts))
    if node.op in _RESHAPES:
        assert inputs[0] is not None
        if _high(out):
            stand[out.name] = inputs[0]
        else:
            edit.replace_output(_reshape(edit, inputs[0], out.sizes, out))
        return
    shaped = [s for s in plan.operands if s is not None]
    sizes = [max(row) for row in zip(*shaped, strict=True)] if shaped else [1]
    attributes: dict[str, ir.Attr] = dict(edit.node.attributes)
    if plan.perm:
        sizes = [sizes[p] for p in plan.perm]
        attributes["perm"] = ir.AttrInt64s("perm", plan.perm)
    stand[out.name] = edit.before(node.op, inputs, attributes, dtype=out.dtype, shape=sizes)


def _reshape(edit: Edit, value: ir.Value, shape: Sequence[int], facts: Value) -> ir.Value:
    return edit.before("Reshape", [value, edit.integers(shape, "shape")], dtype=facts.dtype, shape=shape)


QUIRK = Quirk(
    id="rank",
    code="DP605",
    title="rank above 8",
    ops=(),
    outcome="run fails",
    sources=(MEASURED, "DirectML.h, DML_TENSOR_DIMENSION_COUNT_MAX1"),
    matches=_matches,
    rewrite=_rewrite,
)
