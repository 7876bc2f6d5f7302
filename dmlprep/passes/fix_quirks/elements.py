"""Rewrites of GatherElements and ScatterElements, whose indices DirectML wants as wide as the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from dmlprep.passes.fix_quirks.editing import Edit
from dmlprep.targets.facts import Dim, NodeFacts
from dmlprep.targets.quirks.failing import narrower

__all__ = ["gather_narrow", "scatter_narrow"]

_END = int(np.iinfo(np.int64).max)


def _slice(edit: Edit, data: ir.Value, dims: Sequence[Dim], parts: Mapping[int, tuple[int, int]]) -> ir.Value:
    """``data``, of sizes ``dims``, from and up to which element by axis."""
    axes = sorted(parts)
    slots: list[ir.Value | None] = [
        data,
        edit.integers([parts[a][0] for a in axes], "starts"),
        edit.integers([parts[a][1] for a in axes], "ends"),
        edit.integers(axes, "axes"),
    ]
    sizes = [_size(d, parts.get(a)) for a, d in enumerate(dims)]
    return edit.before("Slice", slots, like=data, shape=sizes)


def _size(dim: Dim, part: tuple[int, int] | None) -> Dim:
    return dim if part is None or not isinstance(dim, int) else min(part[1], dim) - part[0]


def _sizes(facts: NodeFacts, position: int) -> tuple[Dim, ...]:
    value = facts.input(position)
    return (value.shape if value is not None else None) or ()


def _reach(facts: NodeFacts) -> dict[int, int]:
    """How far the indices reach, by the dimensions in which that is not all of the data."""
    indices = _sizes(facts, 1)
    found: dict[int, int] = {}
    for axis in narrower(facts):
        size = indices[axis]
        assert isinstance(size, int)
        found[axis] = size
    return found


def gather_narrow(facts: NodeFacts, edit: Edit) -> str:
    """Off the axis an element is taken from its own place, so what lies beyond the indices is never read."""
    data = edit.node.inputs[0]
    assert data is not None
    parts = {axis: (0, size) for axis, size in _reach(facts).items()}
    edit.set_input(0, _slice(edit, data, _sizes(facts, 0), parts))
    return ""


def scatter_narrow(facts: NodeFacts, edit: Edit) -> str:
    """Scatter into the part that the indices reach, and put what lies beyond beside it again, axis by axis."""
    data, indices, updates = edit.node.inputs[:3]
    assert data is not None
    dims, reach = _sizes(facts, 0), _reach(facts)
    near = {axis: (0, size) for axis, size in reach.items()}
    sizes = [_size(d, near.get(a)) for a, d in enumerate(dims)]
    part = _slice(edit, data, dims, near)
    axis = int(facts.attribute("axis", 0))
    made = edit.before("ScatterElements", [part, indices, updates], {"axis": axis}, like=data, shape=sizes)
    for far, size in reversed(reach.items()):
        del near[far]
        rest = _slice(edit, data, dims, {**near, far: (size, _END)})
        sizes[far] = dims[far]
        made = edit.before("Concat", [made, rest], {"axis": far}, like=data, shape=sizes)
    edit.replace_output(made)
    edit.remove()
    return ""
