"""Which outputs of a model are compared together, and by which rule: the same for search, proof and kit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.graph.model.constants import held_tensor
from dmlprep.graph.model.walk import attribute_graphs
from dmlprep.metrics.data_dependent import DATA_DEPENDENT
from dmlprep.metrics.integer_images import integer_images
from dmlprep.portable.comparison import OutputGroup
from dmlprep.portable.steep import STEEP

_MOVES = frozenset(
    {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Cast", "Gather", "Split",
     "Resize", "Upsample", "Pad", "Clip", "ReduceMean", "ReduceMax", "AveragePool", "MaxPool"}
)  # fmt: skip
"""Operators that hand values on, at other places, or something between them: of probabilities, a probability."""

_MAKES = {"Sigmoid": "map", "HardSigmoid": "map", "Softmax": "classes", "LogSoftmax": "logits"}
_READS_LOGITS = frozenset({"Softmax", "LogSoftmax", "ArgMax"})


def output_groups(model: Model, kinds: Mapping[str, str] | None = None) -> list[OutputGroup]:
    """The outputs in groups: those compared element by element and those that are sets of rows, then the ranked ones.

    Outputs that depend on the same row-choosing nodes and lead with the same dimension, which is neither fixed nor one
    of the inputs', are one set of rows. Outputs that follow from the same TopK of more than one row are ranked. A set
    of rows is no ranking as well. Every other output is alone, as a steep one where it is one (``steep.STEEP``).

    Args:
        kinds: of outputs that the user knows better: ``elements``, ``map``, ``classes`` or ``logits``.
    """
    steep = {**_steep_outputs(model), **(kinds or {})}
    images = integer_images(model)
    sets = _sets_of_rows(model)
    taken = {name for names in sets for name in names}
    ranked = [(names, count) for names, count in _rankings(model) if taken.isdisjoint(names)]
    taken.update(name for names, _ in ranked for name in names)
    by_first = {names[0]: OutputGroup(names, "rows") for names in sets}
    found = []
    for name in dict.fromkeys(v.name or "" for v in model.ir.graph.outputs):
        if name in by_first:
            found.append(by_first[name])
        elif name not in taken:
            kind = cast(Any, steep.get(name, "elements"))
            found.append(OutputGroup((name,), kind, integer_images=(name,) if name in images else ()))
    return [*found, *(OutputGroup(names, "ranked", count) for names, count in ranked)]


def _sets_of_rows(model: Model) -> list[tuple[str, ...]]:
    given = {str(d) for i in model.ir.graph.inputs if i.shape is not None for d in i.shape.dims}
    groups: dict[object, list[str]] = {}
    for value in model.ir.graph.outputs:
        first = value.shape[0] if value.shape is not None and len(value.shape) else None
        dimension = first.value if isinstance(first, ir.SymbolicDim) else first
        fixed = isinstance(dimension, int) or (dimension is not None and dimension in given)
        nodes = set() if fixed else _nearest(value, lambda node: node.op_type in DATA_DEPENDENT)
        if nodes:
            groups.setdefault((frozenset(nodes), str(dimension)), []).append(value.name or "")
    return [tuple(names) for names in groups.values()]


def _rankings(model: Model) -> list[tuple[tuple[str, ...], int | None]]:
    """Outputs by the nearest TopK of more than one row, and how many rows it chooses, where the graph says so."""
    groups: dict[frozenset[ir.Node], list[str]] = {}
    for value in model.ir.graph.outputs:
        nodes = _nearest(value, lambda node: node.op_type == "TopK" and node.domain in ("", "ai.onnx"))
        if nodes:
            groups.setdefault(frozenset(nodes), []).append(value.name or "")
    found = []
    for chosen, names in groups.items():
        counts = {_count(node) for node in chosen}
        count = counts.pop() if len(counts) == 1 else None
        if count != 1:
            found.append((tuple(names), count))
    return found


def _nearest(value: ir.Value, wanted: Callable[[ir.Node], bool]) -> set[ir.Node]:
    """The nearest nodes of a kind that a value depends on."""
    found: set[ir.Node] = set()
    seen: set[ir.Node] = set()
    stack = [value]
    while stack:
        node = stack.pop().producer()
        if node is None or node in seen:
            continue
        seen.add(node)
        if wanted(node):
            found.add(node)
            continue
        stack.extend(v for v in node.inputs if v is not None)
        for _, graph in attribute_graphs(node):
            stack.extend(graph.outputs)
    return found


def _count(node: ir.Node) -> int | None:
    if (attribute := node.attributes.get("k")) is not None:
        return attribute.as_int()
    axis = node.attributes.get("axis")
    shape = node.outputs[0].shape
    place = axis.as_int() if axis is not None else -1
    if shape is not None and -len(shape) <= place < len(shape) and isinstance(size := shape[place], int):
        return size
    known = held_tensor(node.inputs[1]) if len(node.inputs) > 1 else None
    return int(known.numpy().reshape(-1)[0]) if known is not None and known.size == 1 else None


def _steep_outputs(model: Model) -> dict[str, str]:
    """Steep outputs by name, each with its kind (``steep.STEEP``)."""
    found = {value.name or "": _steep_kind(value) for value in model.ir.graph.outputs}
    return {name: kind for name, kind in found.items() if kind in STEEP}


def _steep_kind(value: ir.Value) -> str:
    if "logit" in (value.name or "").lower() or any(n.op_type in _READS_LOGITS for n in value.consumers()):
        return "logits"
    node = value.producer()
    while node is not None and node.op_type in _MOVES and node.inputs and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    if node is None or node.domain not in ("", "ai.onnx"):
        return ""
    if node.op_type == "If":
        place = value.index() or 0
        kinds = {_steep_kind(graph.outputs[place]) for _, graph in attribute_graphs(node)}
        return kinds.pop() if len(kinds) == 1 else ""
    return _MAKES.get(node.op_type, "")
