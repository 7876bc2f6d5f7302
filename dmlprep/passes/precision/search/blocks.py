"""Divide a model into blocks with few values between them, for a search that starts with large parts.

A unit is a node that rounds its result in FP16, together with the nodes before it whose results need no rounding (a
Reshape, a Pad, a Relu). A block is a set of units. It is split between branches that share no value, or else near the
middle, where the fewest values connect the two parts. Nodes in bodies (subgraphs) of If, Loop and Scan are units like
all others. The place of a node is its name, in a body with the path before it (``If_3/then_branch/Pow_1``).
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
"""Number of blocks at the start of a search, at most."""

Unit = Mapping[ir.Node, str]
"""The nodes of a unit in the order of the graph, each with its place. The last one rounds its result, unless nodes
follow whose bodies end with it."""


@dataclass(eq=False)
class Block:
    """Units that a search keeps in FP32, or releases to FP16, together.

    Attributes:
        units: the units in the order of the graph.
        weight: the sum of the gain from FP16 over the block's nodes.
        error: error of the model's outputs when this block was tried in FP16, with the other blocks that were not yet
            released in FP32; ``None`` if it was not tried.
    """

    units: tuple[Unit, ...]
    weight: float = 0.0
    error: float | None = None

    @property
    def places(self) -> list[str]:
        """Places of the block's nodes, without nodes that have bodies."""
        return [place for unit in self.units for place in _places(unit)]

    @property
    def name(self) -> str:
        """A text for messages: the place of the only unit's last node, or "the N nodes from FIRST to LAST"."""
        # a node that a converter fused has the names of all its parts
        first, last = (_places(self.units[at])[-1].split(";")[0] for at in (0, -1))
        return first if len(self.units) == 1 else f"the {len(self.places)} nodes from {first} to {last}"

    def split(self, weigh: Callable[[ir.Node], float]) -> list[Block]:
        """Return two new blocks that make up this block; empty if it has only one unit.

        ``weigh`` returns the gain of a node from FP16.
        """
        if len(self.units) < 2:
            return []
        links = list(_links(self.units))
        halves = _branches(len(self.units), links) or _at_cut(len(self.units), links)
        return [_block([self.units[i] for i in half], weigh) for half in halves]


def first_blocks(
    model: Model, free: Iterable[str], weigh: Callable[[ir.Node], float], *, narrow: bool = False
) -> list[Block]:
    """Divide the nodes whose places are in ``free`` into at most 8 blocks.

    Args:
        weigh: returns the gain of a node from FP16.
        narrow: whether to include nodes without FP32 (or wider) values.
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
    """Yield each node of the main graph and its bodies, with its place and whether it has bodies.

    A node with bodies comes after their nodes.
    """
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
    """Yield the values that one unit computes and another reads: the indices of both units, in order, and the value."""
    makers = {value: i for i, unit in enumerate(units) for node in unit for value in node.outputs}
    for i, unit in enumerate(units):
        for node in unit:
            for value in (*node.inputs, *(v for _, graph in attribute_graphs(node) for v in graph.outputs)):
                if value is not None and (maker := makers.get(value, i)) != i:
                    yield min(maker, i), max(maker, i), value


def _branches(count: int, links: list[tuple[int, int, ir.Value]]) -> list[list[int]]:
    """Return the indices of the units in two groups that share no value; empty if all units are connected.

    ``count``: number of units; ``links``: the result of ``_links``.
    """
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
    """Return the indices of the units before and after a cut in the middle half, where the fewest values cross."""
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
