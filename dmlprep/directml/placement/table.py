"""A placement as the table that a run record holds: bounded in nodes, names and crossings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from dmlprep.directml.placement.placement import PlacedNode, Placement
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.portable.printable import printable, shortened
from dmlprep.record.nodes import CROSSINGS, INPUTS, NAME_LENGTH, NODES, CrossingTable, NodeTable, Reason

_ROLES = {"compute": "c", "shape": "s", "control": "k", "constant": "f"}
_HALF, _SINGLE = frozenset({"float16", "bfloat16"}), frozenset({"float", "double"})


def node_table(graph: GraphFacts, placement: Placement) -> NodeTable:
    """The nodes of ``placement`` and how they hang together.

    Args:
        graph: what ``place_facts`` made the placement of.
    """
    every = [node for inner in graph.all_graphs() for node in inner.nodes]
    placed = {id(node): found for node, found in zip(every, placement.nodes, strict=True)}
    order = list(_in_order(graph))
    shown = order[:NODES]
    rows = [placed[id(node)] for node in shown]
    number = {id(node): index for index, node in enumerate(shown)}
    operators, types, graphs = _Texts(), _Texts(), _Texts()
    places: dict[tuple[str, str], int] = {}
    inside = any(row.graph for row in rows)
    return NodeTable(
        total=len(order),
        names=[_name(row.name) for row in rows],
        providers="".join(map(_provider, rows)),
        floats="".join(map(_floats, shown)),
        roles="".join(_ROLES[row.role] for row in rows),
        operator=_column(operators.place(row.op) for row in rows),
        operators=operators.all,
        reason=_column(places.setdefault((row.code, _name(row.reason)), len(places)) for row in rows),
        not_fused=_column(
            places.setdefault((row.not_fused, _name(row.not_fused_reason)), len(places)) if row.not_fused else -1
            for row in rows
        ),
        reasons=[Reason(*one) for one in places],
        type=_column(types.place(text) if (text := _type(node)) else -1 for node in shown),
        types=types.all,
        partition=_column(-1 if row.partition is None else row.partition for row in rows),
        inputs=" ".join(_inputs(node, number) for node in shown),
        graph=_column(graphs.place(row.graph) for row in rows) if inside else "",
        graphs=graphs.all if inside else [],
        cpu_left_out=sum(_provider(placed[id(node)]) == "c" for node in order[NODES:]),
        crossings=_crossings(placement, rows),
    )


def _in_order(graph: GraphFacts) -> Iterator[NodeFacts]:
    """The nodes of the graph, those of a node's bodies after it."""
    waiting = list(reversed(graph.nodes))
    while waiting:
        node = waiting.pop()
        yield node
        for body in reversed(node.subgraphs.values()):
            waiting += reversed(body.nodes)


class _Texts:
    """Texts that many nodes share, each once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        return self._places.setdefault(text, len(self._places))

    @property
    def all(self) -> list[str]:
        return list(map(_name, self._places))


def _name(text: str) -> str:
    return shortened(printable(text), NAME_LENGTH)


def _column(values: Iterator[int]) -> str:
    return " ".join(map(str, values))


def _provider(row: PlacedNode) -> Literal["d", "c"]:
    return "d" if row.provider == "DmlExecutionProvider" else "c"


def _floats(node: NodeFacts) -> str:
    """Which floating types it computes in; a Cast from one to the other has both."""
    types = {value.type for value in [*node.inputs[:INPUTS], *node.outputs[:INPUTS]] if value is not None}
    half, single = bool(types & _HALF), bool(types & _SINGLE)
    return "m" if half and single else "h" if half else "s" if single else "n"


def _type(node: NodeFacts) -> str:
    made = next((value for value in node.outputs if value is not None), None)
    return "" if made is None or not (made.type or made.shape) else f"{made.type or '?'}{_shape(made)}"


def _shape(value: Value) -> str:
    if value.shape is None:
        return ""
    # onnx's inference calls a size that it does not know unk__1
    sizes = ("?" if size is None or str(size).startswith("unk__") else str(size) for size in value.shape)
    return f"[{','.join(sizes)}]"


def _inputs(node: NodeFacts, number: dict[int, int]) -> str:
    read = [value.producer for value in [*node.inputs, *node.implicit] if value is not None]
    found = dict.fromkeys(number[id(one)] for one in read if one is not None and id(one) in number)
    return ",".join(map(str, list(found)[:INPUTS])) or "-"


def _crossings(placement: Placement, rows: list[PlacedNode]) -> CrossingTable:
    number: dict[str, int] = {}
    for index, row in enumerate(rows):
        number.setdefault(row.name, index)
    largest = sorted(placement.crossings, key=lambda c: -(c.nbytes or 0))[:CROSSINGS]
    return CrossingTable(
        total=len(placement.crossings),
        values=[_name(c.value) for c in largest],
        to="".join("d" if c.to == "dml" else "c" for c in largest),
        producer=_column(number.get(c.producer, -1) for c in largest),
        consumer=_column(number.get(c.consumer, -1) for c in largest),
        nbytes=_column(-1 if c.nbytes is None else c.nbytes for c in largest),
    )
