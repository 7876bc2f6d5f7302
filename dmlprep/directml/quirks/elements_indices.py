"""GatherElements and ScatterElements with fewer indices than data outside the axis, or with more updates than places.

The latter have no equal form: ONNX does not define which update wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from dmlprep.directml.quirks.declaring import DIRECTML_API, END, MEASURED, Edit, NodeFacts, Quirk
from dmlprep.graph.model.dims import Dim


def sizes_by_axis(node: NodeFacts) -> tuple[int, list[tuple[Dim, Dim]]] | None:
    """The axis, and the sizes (of data, of indices) for each dimension, which may be free.

    ``None`` if a rank is unknown, if the ranks differ, or if the data is a scalar.
    """
    data, indices = node.input(0), node.input(1)
    if data is None or indices is None or not data.shape or data.rank != indices.rank:
        return None
    return int(node.attribute("axis", 0)) % len(data.shape), [*zip(data.shape, indices.dims, strict=True)]


def _reach(node: NodeFacts) -> dict[int, int]:
    """Dimension -> size of the indices, for dimensions other than the axis in which the data is longer."""
    axis, sizes = sizes_by_axis(node) or (0, [])
    known = [(i, d, n) for i, (d, n) in enumerate(sizes) if i != axis and isinstance(d, int) and isinstance(n, int)]
    return {i: n for i, d, n in known if n < d}


def _matches(node: NodeFacts) -> str:
    if not _reach(node):
        return ""
    return f"data {list(node.required(0).dims)} with indices {list(node.required(1).dims)}"


def _slice(edit: Edit, data: ir.Value, dims: Sequence[Dim], parts: Mapping[int, tuple[int, int]]) -> ir.Value:
    """Add a Slice of ``data``, whose shape is ``dims``; ``parts``: axis -> (start, end), without the end."""
    return edit.slice(data, parts, shape=[_size(d, parts.get(a)) for a, d in enumerate(dims)])


def _size(dim: Dim, part: tuple[int, int] | None) -> Dim:
    return dim if part is None or not isinstance(dim, int) else min(part[1], dim) - part[0]


def _rewrite_gather(facts: NodeFacts, edit: Edit) -> str:
    """Slice the data to the sizes of the indices, except along the axis: the rest is never read."""
    parts = {axis: (0, size) for axis, size in _reach(facts).items()}
    edit.set_input(0, _slice(edit, edit.input(), facts.required().dims, parts))
    return ""


def _rewrite_scatter(facts: NodeFacts, edit: Edit) -> str:
    """Slice the part that the indices reach, scatter into it, and join the rest again with Concat, axis by axis."""
    if facts.opset < 10:
        return "its opset is below 10, where Slice needs constant bounds"
    data, dims, reach = edit.input(), facts.required().dims, _reach(facts)
    near = {axis: (0, size) for axis, size in reach.items()}
    sizes = [_size(d, near.get(a)) for a, d in enumerate(dims)]
    part = _slice(edit, data, dims, near)
    axis = int(facts.attribute("axis", 0))
    joined = edit.before(facts.op, [part, *edit.node.inputs[1:3]], {"axis": axis}, like=data, shape=sizes)
    for far, size in reversed(reach.items()):
        del near[far]
        rest = _slice(edit, data, dims, {**near, far: (size, END)})
        sizes[far] = dims[far]
        joined = edit.before("Concat", [joined, rest], {"axis": far}, like=data, shape=sizes)
    return edit.become(joined)


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
    ops=("ScatterElements", "Scatter"),
    sources=(MEASURED, DIRECTML_API + "ns-directml-dml_scatter_operator_desc"),
    rewrite=_rewrite_scatter,
)


def _matches_more(node: NodeFacts) -> str:
    axis, sizes = sizes_by_axis(node) or (0, [(None, None)])
    places, updates = sizes[axis]
    more = isinstance(places, int) and isinstance(updates, int) and updates > places
    return f"{updates} updates for {places} places along axis {axis}" if more else ""


QUIRK = Quirk(
    id="scatter-more",
    code="DP637",
    title="ScatterElements with more updates than places",
    ops=("ScatterElements",),
    outcome="create fails",
    sources=(MEASURED, DIRECTML_API + "ns-directml-dml_scatter_operator_desc"),
    matches=_matches_more,
)
