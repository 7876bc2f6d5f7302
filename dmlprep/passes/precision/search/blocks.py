"""A model in blocks: stretches and branches with few values between them, for a search that starts with large parts.

A unit is a node that rounds its result, together with the nodes before it that only forward values (a Reshape, a Pad, a
Relu). A block is a run of units. It is split where a single value connects the two parts, between branches that share
no value, or in the middle. Nodes in bodies of If, Loop and Scan are units like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import attribute_graphs, join_path, label
from dmlprep.passes.precision.emulation.emulate import EXACT
from dmlprep.passes.precision.types import is_wide, solve_types
from dmlprep.passes.precision.view import UNTYPED

_FIRST = 8
"""Blocks at the start of a search."""

Unit = Mapping[ir.Node, str]
"""Nodes in the order of the graph, and their places. The last node computes; only nodes whose bodies end there follow
it."""


@dataclass(eq=False)
class Block:
    """Units that a search keeps in FP32 or releases together.

    Attributes:
        units: in the order of the graph.
        weight: the gain from FP16 here, as a share of the model.
        error: error of the outputs with this block in FP16, and with the other kept blocks of that time in FP32;
            ``None`` where it was not measured.
    """

    units: tuple[Unit, ...]
    weight: float = 0.0
    error: float | None = None

    @property
    def places(self) -> list[str]:
        """Places of its nodes, without nodes that have bodies."""
        return [place for unit in self.units for place in _places(unit)]

    @property
    def name(self) -> str:
        """The node that computes, or the first and the last such node."""
        # a node that a converter fused has the names of all its parts
        first, last = (_places(self.units[at])[-1].split(";")[0] for at in (0, -1))
        return first if len(self.units) == 1 else f"the {len(self.places)} nodes from {first} to {last}"

    def split(self, weigh: Callable[[ir.Node], float]) -> list[Block]:
        """Two blocks that make up this block; empty where it is one unit."""
        if len(self.units) < 2:
            return []
        links = list(_links(self.units))
        halves = _branches(len(self.units), links) or _at_cut(len(self.units), links)
        return [_block([self.units[i] for i in half], weigh) for half in halves]


def first_blocks(
    model: Model, free: Iterable[str], weigh: Callable[[ir.Node], float], *, narrow: bool = False
) -> list[Block]:
    """The blocks at the start of a search: all nodes of the main graph and its bodies whose places are in ``free``.

    Args:
        weigh: the gain from FP16 at a node, as a share of the model.
        narrow: whether to include nodes without FP32 values.
    """
    units = _units(model, set(free), narrow)
    blocks = [_block(units, weigh)] if units else []
    while len(blocks) < _FIRST and (largest := max(blocks, key=lambda b: len(b.units), default=None)) is not None:
        at = blocks.index(largest)
        if not (parts := largest.split(weigh)):
            break
        blocks[at : at + 1] = parts
    return blocks


def _block(units: Sequence[Unit], weigh: Callable[[ir.Node], float]) -> Block:
    return Block(tuple(units), sum(weigh(node) for unit in units for node in unit))


def _units(model: Model, free: set[str], narrow: bool) -> list[Unit]:
    types = solve_types(model.ir)
    order: dict[ir.Node, str] = {}
    ends: dict[ir.Node, ir.Node] = {}
    for place, node, inside in _in_order(model):
        if inside:
            last = next(reversed(order), None)
            if last is not None and order[last].startswith(f"{place}/"):
                order[node], ends[node] = place, last
        elif (
            place in free
            and node.op_type not in UNTYPED
            and node.op_type != "Constant"
            and (narrow or any(is_wide(types.get(v)) for v in (*node.inputs, *node.outputs) if v is not None))
        ):
            order[node] = place
    owner: dict[ir.Node, ir.Node] = {}
    for node in reversed(order):
        readers = [r for v in node.outputs for r in v.consumers() if r in owner]
        if node not in ends:
            owner[node] = owner[readers[0]] if node.op_type in EXACT and readers else node
    for node, last in ends.items():
        owner[node] = owner[last]
    members: dict[ir.Node, dict[ir.Node, str]] = {}
    for node, place in order.items():
        members.setdefault(owner[node], {})[node] = place
    return [members[node] for node in order if node in members]


def _in_order(model: Model) -> Iterator[tuple[str, ir.Node, bool]]:
    """Each node of the main graph and its bodies with its place; a node with bodies comes after them, marked."""
    stack = [("", node, False) for node in reversed(model.ir.graph)]
    while stack:
        path, node, inside = stack.pop()
        place = join_path(path, label(node))
        bodies = [] if inside else list(attribute_graphs(node))
        if not bodies:
            yield place, node, inside
            continue
        stack.append((path, node, True))
        for name, graph in reversed(bodies):
            stack += [(f"{place}/{name}", one, False) for one in reversed(graph)]


def _places(unit: Unit) -> list[str]:
    return [place for node, place in unit.items() if next(attribute_graphs(node), None) is None]


def _links(units: tuple[Unit, ...]) -> Iterator[tuple[int, int, ir.Value]]:
    """Each value that one unit writes and a later one reads."""
    makers = {value: i for i, unit in enumerate(units) for node in unit for value in node.outputs}
    for i, unit in enumerate(units):
        for node in unit:
            for value in (*node.inputs, *(v for _, graph in attribute_graphs(node) for v in graph.outputs)):
                if value is not None and (maker := makers.get(value, i)) != i:
                    yield min(maker, i), max(maker, i), value


def _branches(count: int, links: list[tuple[int, int, ir.Value]]) -> list[list[int]]:
    """The units in two halves that share no value; empty where all units are connected."""
    group = list(range(count))

    def root(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    for a, b, _ in links:
        group[root(a)] = root(b)
    apart: dict[int, list[int]] = {}
    for i in range(count):
        apart.setdefault(root(i), []).append(i)
    if len(apart) < 2:
        return []
    first: list[int] = []
    rest = list(apart.values())
    while len(rest) > 1 and (not first or len(first) + len(rest[0]) <= count / 2):
        first += rest.pop(0)
    return [sorted(first), sorted(i for branch in rest for i in branch)]


def _at_cut(count: int, links: list[tuple[int, int, ir.Value]]) -> list[list[int]]:
    """The units before and after the place in the middle half that the fewest values cross."""
    until: dict[ir.Value, tuple[int, int]] = {}
    for a, b, value in links:
        known = until.get(value, (a, b))
        until[value] = min(known[0], a), max(known[1], b)
    crossing = [0] * (count + 1)
    for a, b in until.values():
        for at in range(a + 1, b + 1):
            crossing[at] += 1
    inner = range(max(1, count // 4), max(2, count - count // 4))
    cut = min(inner, key=lambda at: (crossing[at], abs(at - count / 2)))
    return [list(range(cut)), list(range(cut, count))]
