"""The masks of attention as one bias that a fused operator reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.passes.fusions.form import Operand, Shared, facts_of, once
from dmlprep.passes.fusions.scores import RANK, Mask, spread


def _sum(masks: Sequence[Mask], whole: Value, edit: Edit, shared: Shared) -> ir.Value:
    """All masks as numbers to add, in the smallest shape."""
    kind = whole.dtype
    assert kind is not None

    def numbers(mask: Mask) -> ir.Value:
        value = mask.node.ir.inputs[mask.index]
        assert value is not None
        if mask.number is None:
            return value
        both = [_number(n, kind, edit, shared) for n in (mask.number, 0.0)]
        slots = [value, *(reversed(both) if mask.inverted else both)]
        return edit.before("Where", slots, dtype=kind, shape=mask.value.sizes)

    def total() -> ir.Value:
        result = numbers(masks[0])
        for mask in masks[1:]:
            result = edit.before("Add", [result, numbers(mask)], dtype=kind)
        return result

    return once(shared, ("mask", *(mask.key for mask in masks)), total)


def _number(number: float, kind: ir.DataType, edit: Edit, shared: Shared) -> ir.Value:
    return once(shared, ("number", number, kind), lambda: edit.constant(np.array(number, kind.numpy()), "number"))


def bias(masks: Sequence[Mask], whole: Value, last: NodeFacts, *, cleared: bool) -> Operand:
    """The masks as one of [batch, heads, queries, keys]; where ``cleared``, rows that are -inf throughout are zeros."""

    def get(edit: Edit, shared: Shared) -> ir.Value:
        total, kind = _sum(masks, whole, edit, shared), whole.dtype
        assert kind is not None

        def make() -> ir.Value:
            value = total
            if cleared:
                empty = _empty(total, last, kind, edit, shared)
                value = edit.before("Where", [empty, _number(0.0, kind, edit, shared), value], dtype=kind)
            if max(len(mask.value.sizes) for mask in masks) < RANK or spread(masks) != whole.sizes:
                sizes = edit.integers(whole.sizes, "shape")
                value = edit.before("Expand", [value, sizes], dtype=kind, shape=whole.sizes)
            return value

        return once(shared, ("bias", total, cleared, tuple(whole.sizes)), make)

    return Operand(facts_of("bias", last.graph, whole.type, whole.shape), get)


def _empty(total: ir.Value, last: NodeFacts, kind: ir.DataType, edit: Edit, shared: Shared) -> ir.Value:
    """Return whether each row of a mask is -inf throughout, as one element in the place of its last axis."""

    def make() -> ir.Value:
        axes = [edit.integers([-1], "axes")] if last.opset >= 18 else []
        most = edit.before("ReduceMax", [total, *axes], {} if axes else {"axes": [-1]}, dtype=kind)
        return edit.before("Equal", [most, _number(-np.inf, kind, edit, shared)], dtype=ir.DataType.BOOL)

    return once(shared, ("empty", total), make)


def empty_rows(masks: Sequence[Mask], whole: Value, last: NodeFacts) -> Operand:
    """Queries that may look at no key, bool[batch or 1, queries or 1, 1]."""
    batch, _, queries, _ = spread(masks)
    shape = [batch, queries, 1]

    def get(edit: Edit, shared: Shared) -> ir.Value:
        total, kind = _sum(masks, whole, edit, shared), whole.dtype
        assert kind is not None

        def make() -> ir.Value:
            slots = [_empty(total, last, kind, edit, shared), edit.integers(shape, "shape")]
            return edit.before("Reshape", slots, dtype=ir.DataType.BOOL, shape=shape)

        return once(shared, ("rows", total), make)

    return Operand(facts_of("empty", last.graph, "bool", shape), get)
