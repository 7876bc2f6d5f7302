"""Outputs that are ranked: rows chosen by TopK, whose order follows from scores that may be as good as equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from dmlprep.model.model import Model
from dmlprep.model.walk import attribute_graphs

__all__ = ["Ranked", "ranked_outputs"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Ranked:
    """Outputs whose rows belong together: the scores, boxes and labels that one TopK chose.

    Attributes:
        names: of the outputs.
        count: how many rows TopK chooses; ``None`` where the graph does not say.
    """

    names: tuple[str, ...]
    count: int | None

    def rows(self, side: dict[str, Array]) -> dict[str, Array] | None:
        """The outputs with one row for each that was chosen, ``[rows, ...]``: batches follow each other.

        Returns:
            the rows, with the number of its batch as a column ``""`` where there are several; ``None`` where the
            outputs have no common rows.
        """
        found: dict[str, Array] = {}
        batches = set[int]()
        for name in self.names:
            array = side[name]
            axis = self._axis(array)
            if axis is None:
                return None
            ranked = np.moveaxis(array, axis, min(axis, 1))
            if axis == 0:
                ranked = ranked[None]
            batches.add(ranked.shape[0])
            found[name] = ranked.reshape(ranked.shape[0] * ranked.shape[1], *ranked.shape[2:])
        if len(batches) != 1 or len({len(rows) for rows in found.values()}) != 1:
            return None
        batch = batches.pop()
        total = len(next(iter(found.values())))
        if batch > 1:
            found[""] = np.repeat(np.arange(batch), total // batch)
        return found

    def _axis(self, array: Array) -> int | None:
        if array.dtype.kind in "OUS" or not array.ndim:
            return None
        if self.count is None:
            return min(array.ndim - 1, 1)
        # behind the batch, where there is one
        order = [*range(1, array.ndim), 0]
        return next((axis for axis in order if array.shape[axis] == self.count), None)


def ranked_outputs(model: Model) -> list[Ranked]:
    """The outputs that follow from a TopK of more than one row, grouped by the nearest such nodes."""
    groups: dict[frozenset[ir.Node], list[str]] = {}
    for value in model.ir.graph.outputs:
        nodes = _nearest(value)
        if nodes:
            groups.setdefault(frozenset(nodes), []).append(value.name or "")
    found = []
    for chosen, names in groups.items():
        counts = {_count(node) for node in chosen}
        count = counts.pop() if len(counts) == 1 else None
        if count != 1:
            found.append(Ranked(tuple(names), count))
    return found


def _nearest(value: ir.Value) -> set[ir.Node]:
    found: set[ir.Node] = set()
    seen: set[ir.Node] = set()
    stack = [value]
    while stack:
        node = stack.pop().producer()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.op_type == "TopK" and node.domain in ("", "ai.onnx"):
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
    known = ir.convenience.get_const_tensor(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
    return int(known.numpy().reshape(-1)[0]) if known is not None and known.size == 1 else None
