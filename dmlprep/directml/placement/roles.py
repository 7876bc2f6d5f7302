"""What a node is for: compute, shape arithmetic, control flow, or a constant that is folded at load."""

from __future__ import annotations

from typing import Literal

from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.graph.analysis.operators import CONTROL
from dmlprep.graph.model.random_ops import RANDOM

Role = Literal["compute", "shape", "control", "constant"]

SHAPE_VALUE = 1024
"""Elements up to which a value derived from shapes alone counts as shape arithmetic, not as data."""

_FROM_SHAPE = frozenset({"Shape", "Size"})
_WHOLE_NUMBERS = frozenset(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"])


def roles(graph: GraphFacts) -> dict[int, Role]:
    """``id(node)`` -> role, for every node of the graph and its subgraphs."""
    found: dict[int, Role] = {}
    constant: set[int] = set()
    of_shape: set[int] = set()
    for node in graph.all_nodes():
        found[id(node)] = role = _role(node, constant, of_shape)
        if role in ("constant", "shape"):
            (constant if role == "constant" else of_shape).update(map(id, filter(None, node.outputs)))
    return found


def _role(node: NodeFacts, constant: set[int], of_shape: set[int]) -> Role:
    if node.op in _FROM_SHAPE:
        return "shape"
    given = [v for v in node.inputs if v is not None]

    def fixed(value: Value) -> bool:
        return value.constant or id(value) in constant

    if not node.subgraphs and node.op not in RANDOM and all(fixed(v) for v in given):
        return "constant"
    if node.op in CONTROL:
        return "control"
    if not any(id(v) in of_shape for v in given) or not all(fixed(v) or id(v) in of_shape for v in given):
        return "compute"
    is_small = all(
        v is None or (v.type in _WHOLE_NUMBERS and (v.size or 0) <= SHAPE_VALUE) or (v.size or 2) <= 1
        for v in node.outputs
    )
    return "shape" if is_small else "compute"
