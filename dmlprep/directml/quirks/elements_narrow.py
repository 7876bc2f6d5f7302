"""GatherElements and ScatterElements with fewer indices than data in a dimension other than the axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from dmlprep.directml.quirks.editing import END, Edit
from dmlprep.directml.quirks.quirk import DIRECTML_API, MEASURED, Quirk
from dmlprep.directml.targets.facts import NodeFacts
from dmlprep.graph.model.dims import Dim


def sizes_by_axis(node: NodeFacts) -> tuple[int, list[tuple[Dim, Dim]]] | None:
    """The axis, and the sizes of data and indices by dimension; ``None`` where they are not known."""
    data, indices = node.input(0), node.input(1)
    if data is None or indices is None or data.shape is None or indices.shape is None:
        return None
    if not data.shape or len(data.shape) != len(indices.shape):
        return None
    return int(node.attribute("axis", 0)) % len(data.shape), [*zip(data.shape, indices.shape, strict=True)]


def _narrower(node: NodeFacts) -> list[int]:
    """Dimensions, off the axis, in which there are fewer indices than data."""
    found = sizes_by_axis(node)
    if found is None:
        return []
    axis, sizes = found
    known = [(i, d, n) for i, (d, n) in enumerate(sizes) if i != axis and isinstance(d, int) and isinstance(n, int)]
    return [i for i, d, n in known if n < d]


def _matches(node: NodeFacts) -> str:
    data, indices = node.input(0), node.input(1)
    if data is None or indices is None or not _narrower(node):
        return ""
    return f"data {list(data.shape or ())} with indices {list(indices.shape or ())}"


def _slice(edit: Edit, data: ir.Value, dims: Sequence[Dim], parts: Mapping[int, tuple[int, int]]) -> ir.Value:
    """``data``, of sizes ``dims``, from and up to which element by axis."""
    return edit.slice(data, parts, shape=[_size(d, parts.get(a)) for a, d in enumerate(dims)])


def _size(dim: Dim, part: tuple[int, int] | None) -> Dim:
    return dim if part is None or not isinstance(dim, int) else min(part[1], dim) - part[0]


def _sizes(facts: NodeFacts, position: int) -> tuple[Dim, ...]:
    value = facts.input(position)
    return (value.shape if value is not None else None) or ()


def _reach(facts: NodeFacts) -> dict[int, int]:
    """How far the indices reach, for the dimensions in which the data is longer."""
    indices = _sizes(facts, 1)
    found: dict[int, int] = {}
    for axis in _narrower(facts):
        size = indices[axis]
        assert isinstance(size, int)
        found[axis] = size
    return found


def _rewrite_gather(facts: NodeFacts, edit: Edit) -> str:
    """Slice the data to the sizes of the indices, except along the axis: the rest is never read."""
    data = edit.node.inputs[0]
    assert data is not None
    parts = {axis: (0, size) for axis, size in _reach(facts).items()}
    edit.set_input(0, _slice(edit, data, _sizes(facts, 0), parts))
    return ""


def _rewrite_scatter(facts: NodeFacts, edit: Edit) -> str:
    """Slice the part that the indices reach, scatter into it, and join the rest again with Concat, axis by axis."""
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
        rest = _slice(edit, data, dims, {**near, far: (size, END)})
        sizes[far] = dims[far]
        made = edit.before("Concat", [made, rest], {"axis": far}, like=data, shape=sizes)
    return edit.become(made)


GATHER_NARROW = Quirk(
    id="gather-narrow",
    code="DP636",
    title="GatherElements or ScatterElements with narrower indices",
    ops=("GatherElements",),
    outcome="create fails",
    sources=(MEASURED, DIRECTML_API + "ns-directml-dml_gather_elements_operator_desc"),
    matches=_matches,
    rewrite=_rewrite_gather,
)
SCATTER_NARROW = replace(
    GATHER_NARROW,
    id="scatter-narrow",
    ops=("ScatterElements",),
    sources=(MEASURED, DIRECTML_API + "ns-directml-dml_scatter_operator_desc"),
    rewrite=_rewrite_scatter,
)
