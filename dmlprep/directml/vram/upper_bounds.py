"""Sizes that only a run tells, and how large they can be: of what is selected among boxes or elements."""

from __future__ import annotations

from dmlprep.directml.placement.crossings import LARGEST, nbytes
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.directml.vram.fused import SizeOf


def at_most(graph: GraphFacts) -> dict[str, int]:
    """Name of a size -> the largest that it can be, where its operator's inputs tell."""
    found: dict[str, int] = {}
    for inner in graph.all_graphs():
        for node in inner.nodes:
            most = _most(node)
            for value in node.outputs if most is not None else ():
                for dim in (value.shape or ()) if value is not None else ():
                    if isinstance(dim, str) and dim:
                        found[dim] = max(found.get(dim, 0), most or 0)
    return found


def size_at_most(graph: GraphFacts) -> SizeOf:
    """Bytes of each value at most; ``None`` where that is not known either."""
    bounds = at_most(graph)

    def size(value: Value) -> int | None:
        known = nbytes(value)
        if known is not None or value.shape is None or value.dtype is None or not bounds:
            return known
        count = 1
        for dim in value.shape:
            one = dim if isinstance(dim, int) else bounds.get(dim or "")
            if one is None:
                return None
            count *= one
        found = (count * value.dtype.bitwidth + 7) // 8
        return found if found <= LARGEST else None

    return size


def _most(node: NodeFacts) -> int | None:
    """How many its operator selects at most; ``None`` where it selects nothing, or that is not known."""
    first = node.input(0)
    if first is None or not first.static:
        return None
    if node.key in ("NonZero", "Unique", "Compress"):
        return first.size
    scores = node.input(1)
    if node.key != "NonMaxSuppression" or scores is None or not scores.static or scores.rank != 3:
        return None
    batch, classes, boxes = scores.sizes
    limit = node.input(2)
    wanted = (limit.integers() or [boxes])[0] if limit is not None else 0
    return batch * classes * max(min(boxes, wanted), 0)
