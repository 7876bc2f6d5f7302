"""The masks of attention as one bias that a fused operator reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.passes.fusions.form import Operand, Shared
from dmlprep.passes.fusions.scores import RANK, Mask, spread


def _sum(masks: Sequence[Mask], whole: Value, edit: Edit, shared: Shared) -> ir.Value:
    """All masks as numbers to add, in the smallest shape."""
    kind = whole.dtype
    assert kind is not None
    key = ("mask", *(mask.key for mask in masks))
    if key in shared:
        return shared[key]
    total: ir.Value | None = None
    for mask in masks:
        value = mask.node.ir.inputs[mask.index]
        assert value is not None
        if mask.number is not None:
            numbers = [_number(n, kind, edit, shared) for n in (mask.number, 0.0)]
            if mask.inverted:
                numbers.reverse()
            value = edit.before("Where", [value, *numbers], dtype=kind, shape=mask.value.sizes)
        total = value if total is None else edit.before("Add", [total, value], dtype=kind)
    assert total is not None
    shared[key] = total
    return total


def _number(number: float, kind: ir.DataType, edit: Edit, shared: Shared) -> ir.Value:
    key = ("number", number, kind)
    if key not in shared:
        shared[key] = edit.constant(np.array(number, kind.numpy()), "number")
    return shared[key]


def bias(masks: Sequence[Mask], whole: Value, last: NodeFacts, *, cleared: bool) -> Operand:
    """The masks as one of [batch, heads, queries, keys].

    Args:
        cleared: rows that are -inf throughout are zeros.
    """
    facts = Value("bias", last.graph)
    facts.type, facts.shape = whole.type, whole.shape

    def get(edit: Edit, shared: Shared) -> ir.Value:
        total, kind = _sum(masks, whole, edit, shared), whole.dtype
        assert kind is not None
        key = ("bias", total, cleared, tuple(whole.sizes))
        if key not in shared:
            value = total
            if cleared:
                empty = _empty(total, last, kind, edit, shared)
                value = edit.before("Where", [empty, _number(0.0, kind, edit, shared), value], dtype=kind)
            if max(len(mask.value.sizes) for mask in masks) < RANK or spread(masks) != whole.sizes:
                sizes = edit.integers(whole.sizes, "shape")
                value = edit.before("Expand", [value, sizes], dtype=kind, shape=whole.sizes)
            shared[key] = value
        return shared[key]

    return Operand(facts, get)


def _empty(total: ir.Value, last: NodeFacts, kind: ir.DataType, edit: Edit, shared: Shared) -> ir.Value:
    """Whether each row of a mask is -inf throughout, as one element in the place of its last axis."""
    key = ("empty", total)
    if key not in shared:
        axes = [edit.integers([-1], "axes")] if last.opset >= 18 else []
        most = edit.before("ReduceMax", [total, *axes], {} if axes else {"axes": [-1]}, dtype=kind)
        lowest = _number(-np.inf, kind, edit, shared)
        shared[key] = edit.before("Equal", [most, lowest], dtype=ir.DataType.BOOL)
    return shared[key]


def empty_rows(masks: Sequence[Mask], whole: Value, last: NodeFacts) -> Operand:
    """Queries that may look at no key, bool[batch or 1, queries or 1, 1]."""
    batch, _, queries, _ = spread(masks)
    shape = [batch, queries, 1]
    facts = Value("empty", last.graph)
    facts.type, facts.shape = "bool", tuple(shape)

    def get(edit: Edit, shared: Shared) -> ir.Value:
        total, kind = _sum(masks, whole, edit, shared), whole.dtype
        assert kind is not None
        key = ("rows", total)
        if key not in shared:
            empty = _empty(total, last, kind, edit, shared)
            shared[key] = edit.before(
                "Reshape", [empty, edit.integers(shape, "shape")], dtype=ir.DataType.BOOL, shape=shape
            )
        return shared[key]

    return Operand(facts, get)
