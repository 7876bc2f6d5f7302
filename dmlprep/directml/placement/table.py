"""A placement as the table of a run record, with a limited number of nodes, names and crossings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeVar

from dmlprep.directml.placement.placement import PlacedNode, Placement
from dmlprep.directml.targets.facts import GraphFacts, NodeFacts, Value
from dmlprep.portable.printable import printable, shortened
from dmlprep.record.nodes import CROSSINGS, INPUTS, NAME_LENGTH, NODES, CrossingTable, NodeTable, Reason

T = TypeVar("T")

_ROLES = {"compute": "c", "shape": "s", "control": "k", "constant": "f"}
_HALF, _SINGLE = frozenset({"float16", "bfloat16"}), frozenset({"float", "double"})


def node_table(graph: GraphFacts, placement: Placement) -> NodeTable:
    """Return the table of a placement: its first ``NODES`` nodes, and the connections between them.

    ``graph`` is the graph from which ``place_facts`` made ``placement``.
    """
    placed = {id(node): row for node, row in zip(graph.all_nodes(), placement.nodes, strict=True)}
    order = list(_in_order(graph))
    shown = order[:NODES]
    rows = [placed[id(node)] for node in shown]
    number = {id(node): index for index, node in enumerate(shown)}
    operators, types, graphs, modules, places = (dict[str, int]() for _ in range(5))
    in_names = any(node.sources is not None and node.sources.in_names for node in shown[:1])
    sources = [None if in_names else row.source for row in rows]
    reasons: dict[tuple[str, str], int] = {}
    return NodeTable(
        total=len(order),
        names=[recorded_name(row.name) for row in rows],
        providers="".join(map(_provider, rows)),
        floats="".join(map(_floats, shown)),
        roles="".join(_ROLES[row.role] for row in rows),
        operator=_column(_place(operators, row.op) for row in rows),
        operators=list(map(recorded_name, operators)),
        reason=_column(_place(reasons, (row.code, recorded_name(row.reason))) for row in rows),
        not_fused=_column(
            _place(reasons, (row.not_fused, recorded_name(row.not_fused_reason))) if row.not_fused else -1
            for row in rows
        ),
        reasons=[Reason(*one) for one in reasons],
        type=_column(_place(types, text) if (text := _type(node)) else -1 for node in shown),
        types=list(map(recorded_name, types)),
        partition=_column(-1 if row.partition is None else row.partition for row in rows),
        inputs=" ".join(_inputs(node, number) for node in shown),
        graph=_column(_place(graphs, row.graph) for row in rows) if any(row.graph for row in rows) else "",
        graphs=list(map(recorded_name, graphs)),
        module=_column(_place(modules, s.module) if s is not None else -1 for s in sources) if any(sources) else "",
        modules=list(map(recorded_name, modules)),
        place=_column(_place(places, s.place) if s is not None and s.place else -1 for s in sources)
        if any(sources)
        else "",
        places=list(map(recorded_name, places)),
        cpu_left_out=sum(_provider(placed[id(node)]) == "c" for node in order[NODES:]),
        crossings=_crossings(placement, rows),
    )


def _in_order(graph: GraphFacts) -> Iterator[NodeFacts]:
    """The nodes of the graph and its subgraphs in order; the nodes of a node's subgraphs come right after it."""
    waiting = list(reversed(graph.nodes))
    while waiting:
        node = waiting.pop()
        yield node
        for body in reversed([*node.subgraphs.values()]):
            waiting += reversed(body.nodes)


def _place(places: dict[T, int], key: T) -> int:
    """Return the index of ``key`` in ``places``; a new key is added with the next index."""
    return places.setdefault(key, len(places))


def recorded_name(text: str) -> str:
    """A name from the model in the form for records: printable, and shortened to ``NAME_LENGTH``."""
    return shortened(printable(text), NAME_LENGTH)


def _column(values: Iterator[int]) -> str:
    return " ".join(map(str, values))


def _provider(row: PlacedNode) -> Literal["d", "c"]:
    return "d" if row.provider == "DmlExecutionProvider" else "c"


def _floats(node: NodeFacts) -> str:
    """The floating-point types of a node's first ``INPUTS`` inputs and outputs as one letter.

    ``h``: FP16 or BF16; ``s``: FP32 or FP64; ``m``: both (a Cast); ``n``: none.
    """
    types = {value.type for value in [*node.inputs[:INPUTS], *node.outputs[:INPUTS]] if value is not None}
    half, single = bool(types & _HALF), bool(types & _SINGLE)
    return "m" if half and single else "h" if half else "s" if single else "n"


def _type(node: NodeFacts) -> str:
    output = next((value for value in node.outputs if value is not None), None)
    return "" if output is None or not (output.type or output.shape) else f"{output.type or '?'}{_shape(output)}"


def _shape(value: Value) -> str:
    if value.shape is None:
        return ""
    # onnx's inference names unknown sizes unk__1
    sizes = ("?" if size is None or str(size).startswith("unk__") else str(size) for size in value.shape)
    return f"[{','.join(sizes)}]"


def _inputs(node: NodeFacts, number: dict[int, int]) -> str:
    read = [value.producer for value in [*node.inputs, *node.implicit] if value is not None]
    sources = dict.fromkeys(number[id(one)] for one in read if one is not None and id(one) in number)
    return ",".join(map(str, list(sources)[:INPUTS])) or "-"


def _crossings(placement: Placement, rows: list[PlacedNode]) -> CrossingTable:
    number = {row.name: index for index, row in reversed([*enumerate(rows)])}  # the first row of a name wins
    largest = sorted(placement.crossings, key=lambda c: -(c.nbytes or 0))[:CROSSINGS]
    return CrossingTable(
        total=len(placement.crossings),
        values=[recorded_name(c.value) for c in largest],
        to="".join("d" if c.to == "dml" else "c" for c in largest),
        producer=_column(number.get(c.producer, -1) for c in largest),
        consumer=_column(number.get(c.consumer, -1) for c in largest),
        nbytes=_column(-1 if c.nbytes is None else c.nbytes for c in largest),
    )
