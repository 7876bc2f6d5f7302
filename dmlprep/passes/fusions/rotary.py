"""Fuse rotary embeddings into RotaryEmbedding of com.microsoft, and expand it again.

The operator rotates halves or pairs of each head by an angle that depends on the position. Tables hold the cosines and
sines of the angles. Models compute it in two forms. The first is ``x * cos + turned(x) * sin`` where ``turned`` is
Concat(-x2, x1). The second is ``x1 * cos - x2 * sin`` together with ``x2 * cos + x1 * sin``, as in ai.onnx's function
body. ``x1`` and ``x2`` are halves (Slice, Split), or even and odd elements (Slice in steps of 2, or a Reshape to
pairs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import END, Edit
from dmlprep.directml.quirks.patterns import scalar
from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.passes.fusions.form import Form, Match, Operand, Shared, constant, facts_of, input_operand, once, view
from dmlprep.passes.fusions.reading import held, made_by, sides, source
from dmlprep.portable.arrays import Array

Kind = Literal["halves", "pairs"]

_RANK = 4
"""Rank of the data: [batch, heads, sequence, size] or [batch, sequence, heads, size]."""


@dataclass(frozen=True)
class _Part:
    """A half of each head of ``whole``, the data to rotate.

    Attributes:
        reader: the node that reads the data to cut out the half.
        is_second: whether this is the second half (of pairs: the odd elements).
        kind: whether heads are cut into two halves, or into even and odd elements ("pairs").
    """

    whole: Value
    reader: NodeFacts
    is_second: bool
    kind: Kind


@dataclass(frozen=True)
class _Table:
    """Cosines or sines for each position and element of half a head, and the node that reads them (input ``index``)."""

    value: Value
    node: NodeFacts
    index: int


@dataclass(frozen=True)
class _Turn:
    """A match: the data to rotate (``part.whole``), and the tables of cosines and sines."""

    part: _Part
    cos: _Table
    sin: _Table
    doubled: bool
    """True if the tables have each number twice."""


def _match(node: NodeFacts) -> Match | str | None:
    turn = _one_sum(node) if node.key == "Add" else _two_sums(node)
    result = node.output()
    if turn is None or result is None:
        return None
    sizes = turn.part.whole.sizes
    if not turn.part.whole.static or not result.static or result.sizes != sizes:
        return "the sizes of its data are unknown"
    if len(sizes) != _RANK or 0 in sizes:
        return f"it has {len(sizes)} dimensions, not {_RANK}"
    half = sizes[-1] // 2
    # The axis of the positions: the tables have size 1 on the axis of the heads.
    for axis, heads in ((2, 1), (1, 2)):
        width = 2 * half if turn.doubled else half
        batches = {_batches(table.value, sizes, axis, heads, width) for table in (turn.cos, turn.sin)}
        if len(batches) == 1 and None not in batches:
            break
    else:
        return "its cosines and sines do not depend on the position alone"
    batch, positions = batches.pop() or 1, sizes[axis]
    tables = [_unviewed(table.node, table.index) for table in (turn.cos, turn.sin)]
    if turn.doubled:
        tables = [_halved(table, turn.part.kind) for table in tables]
    tables = [view(table, [batch * positions, half], "table", share=True) for table in tables]
    data = _unviewed(turn.part.reader, 0, sizes)
    reshaped: list[int] = []
    attributes = {"interleaved": int(turn.part.kind == "pairs")}
    if axis == 1:
        reshaped = [sizes[0], positions, sizes[2] * sizes[3]]
        data = view(_unviewed(turn.part.reader, 0, reshaped), reshaped, "data")
        attributes["num_heads"] = sizes[2]
    return Match(
        at=node,
        gives=[(node, 0)],
        inputs=[data, _positions(data.facts, sizes[0], batch, positions), *tables],
        attributes=attributes,
        reshaped=reshaped,
    )


def _positions(data: Value, batch: int, tables: int, count: int) -> Operand:
    """The constant input position_ids, int64[batch, count]: where each position is in the flattened tables.

    Args:
        tables: batch size of the tables. If it is not ``batch``, all batches use the same table.
    """
    first = np.arange(batch)[:, None] * (count if tables == batch else 0)
    return constant("positions", data.graph, (first + np.arange(count)).astype(np.int64))


def _batches(table: Value, sizes: list[int], axis: int, heads: int, width: int) -> int | None:
    """Return the batch size of a table of cosines or sines: 1, or that of the data; ``None`` if its shape does not fit.

    Args:
        sizes: shape of the data, in four dimensions.
        axis, heads: the axes of the positions and of the heads.
        width: the required size of the last axis.
    """
    shape = [1] * (_RANK - len(table.sizes)) + table.sizes
    if not table.static or len(shape) != _RANK or shape[heads] != 1 or shape[axis] != sizes[axis] or shape[3] != width:
        return None
    return shape[0] if shape[0] in (1, sizes[0]) else None


def _unviewed(node: NodeFacts, index: int, sizes: list[int] | None = None) -> Operand:
    """Go back from input ``index`` of a node over nodes that move no element (Reshape, Unsqueeze, a full Slice).

    Args:
        sizes: go back to the nearest value of this shape; without one, return the input itself. ``None``: go back as
            far as the last axis keeps its size. This often reaches a value that several rotations share.
    """
    start = input_operand(node, index)
    while sizes is None or start.facts.sizes != sizes:
        value = node.inputs[index]
        before = value.producer if value is not None else None
        under = before.input(0) if before is not None and before.graph == node.graph else None
        if before is None or under is None or value is None or not (under.static and value.static):
            break
        views = (
            before.key in _VIEWS and under.size == value.size and (before.key != "Concat" or len(before.inputs) == 1)
        )
        forwards = before.key != "Slice" or all(step == 1 for step in _integers(before, 4) or [1])
        if not views or not forwards or (sizes is None and under.sizes[-1:] != value.sizes[-1:]):
            break
        node, index = before, 0
        if sizes is None or under.sizes == sizes:
            start = input_operand(node, index)
    return start


def _one_sum(add: NodeFacts) -> _Turn | None:
    """Match x * cos + turned(x) * sin at its Add; ``None`` for other nodes."""
    for one, other in sides(add):
        plain, turned = made_by(add.inputs[one], "Mul"), made_by(add.inputs[other], "Mul")
        if plain is None or turned is None:
            continue
        for at, beside in sides(turned):
            parts = _joined(turned.inputs[at])
            if parts is None:
                continue
            left_out, right_out, kind = parts
            negated = made_by(left_out, "Neg")
            x2 = _part(negated.input(0)) if negated is not None else None
            x1 = _part(right_out)
            if x1 is None or x2 is None or not _halves(x1, x2, kind):
                continue
            for data, cosine in sides(plain):
                if source(plain.inputs[data]) is source(x1.whole):
                    cos, sin = plain.inputs[cosine], turned.inputs[beside]
                    twice = _doubled(plain, cosine, kind) and _doubled(turned, beside, kind)
                    if cos is not None and sin is not None and twice:
                        return _Turn(x1, _Table(cos, plain, cosine), _Table(sin, turned, beside), True)
    return None


def _two_sums(node: NodeFacts) -> _Turn | None:
    """Match x1 * cos - x2 * sin, joined with x2 * cos + x1 * sin, at the last node; ``None`` for other nodes."""
    joined = _joined(node.output())
    if joined is None:
        return None
    real, imaginary, kind = joined
    less, more = made_by(real, "Sub"), made_by(imaginary, "Add")
    if less is None or more is None or len(less.inputs) != 2 or len(more.inputs) != 2:
        return None
    first, second = _product(less.inputs[0]), _product(less.inputs[1])
    if first is None or second is None:
        return None
    (x1, cos), (x2, sin) = first, second
    if not _halves(x1, x2, kind):
        return None
    for one, other in sides(more):
        third, fourth = _product(more.inputs[one]), _product(more.inputs[other])
        if third is None or fourth is None:
            continue
        same = third[0].is_second and not fourth[0].is_second and _alike(third[1], cos) and _alike(fourth[1], sin)
        if same and all(part.whole is x1.whole and part.kind == kind for part in (third[0], fourth[0])):
            return _Turn(x1, cos, sin, False)
    return None


def _alike(one: _Table, other: _Table) -> bool:
    return source(one.value) is source(other.value)


def _halves(x1: _Part, x2: _Part, kind: Kind) -> bool:
    return x1.whole is x2.whole and not x1.is_second and x2.is_second and x1.kind == x2.kind == kind


def _product(value: Value | None) -> tuple[_Part, _Table] | None:
    """Match a value that is a half of each head times a table; ``None`` for other values."""
    product = made_by(value, "Mul")
    if product is None:
        return None
    for one, other in sides(product):
        part, table = _part(product.inputs[one]), product.inputs[other]
        if part is not None and table is not None:
            return part, _Table(table, product, other)
    return None


def _part(value: Value | None) -> _Part | None:
    """Match a value that is a half of each head; ``None`` for other values."""
    value = source(value)
    node = value.producer if value is not None else None
    if value is None or node is None or not node.inputs:
        return None
    if node.key in ("Squeeze", "Reshape") and value.static and value.sizes:
        inner = node.input(0)
        if inner is not None and inner.static and inner.sizes == [*value.sizes, 1]:  # the other half of [.., half, 2]
            return _of_pairs(inner)
    if node.key == "Gather":
        return _of_pairs(value)
    whole = source(node.input(0))
    if whole is None or not whole.static or not value.static or len(whole.sizes) != len(value.sizes):
        return None
    size = whole.sizes[-1] if whole.sizes else 0
    if size < 2 or size % 2 or value.sizes != [*whole.sizes[:-1], size // 2]:
        return None
    if node.key == "Split":
        halved = len(node.outputs) == 2 and _along_last(node, whole)
        return _Part(whole, node, node.output(1) is value, "halves") if halved else None
    start, step = _cut(node, whole) or (-1, 0)
    if step == 1 and start in (0, size // 2):
        return _Part(whole, node, start > 0, "halves")
    return _Part(whole, node, start > 0, "pairs") if step == 2 and start in (0, 1) else None


def _of_pairs(value: Value) -> _Part | None:
    """Match a value that Gather, Slice or Split cuts from pairs [.., half, 2]: one element of each pair.

    ``None`` for other values.
    """
    node = value.producer
    pairs = source(node.input(0)) if node is not None else None
    before = made_by(pairs, "Reshape")
    whole = source(before.input(0)) if before is not None else None
    if node is None or pairs is None or before is None or whole is None or not whole.static or not pairs.static:
        return None
    if not whole.sizes or whole.sizes[-1] % 2 or pairs.sizes != [*whole.sizes[:-1], whole.sizes[-1] // 2, 2]:
        return None
    if node.key == "Gather":
        index = _integers(node, 1)
        fits = index in ([0], [1], [-1]) and _along_last(node, pairs)
        return _Part(whole, before, index != [0], "pairs") if fits else None
    if node.key == "Split":
        fits = len(node.outputs) == 2 and _along_last(node, pairs)
        return _Part(whole, before, node.output(1) is value, "pairs") if fits else None
    cut = _cut(node, pairs)
    return _Part(whole, before, cut[0] == 1, "pairs") if cut is not None and cut[0] in (0, 1) else None


def _cut(node: NodeFacts, data: Value) -> tuple[int, int] | None:
    """First element and step of a Slice of the last axis of ``data``; ``None`` for other nodes."""
    if node.key != "Slice":
        return None
    rank, axes = len(data.sizes), _integers(node, 3)
    starts, axes, steps = _integers(node, 1), [0] if axes is None else axes, _integers(node, 4) or [1]
    if starts is None or not len(starts) == len(axes) == len(steps) == 1 or axes[0] % rank != rank - 1:
        return None
    return (starts[0] + data.sizes[-1] if starts[0] < 0 else starts[0]), steps[0]


def _along_last(node: NodeFacts, data: Value) -> bool:
    """Return whether the attribute ``axis`` of a node is the last axis of ``data``."""
    return bool(node.attribute("axis", 0) % len(data.sizes) == len(data.sizes) - 1)


def _integers(node: NodeFacts, index: int) -> list[int] | None:
    value = node.input(index)
    return value.integers() if value is not None else None


def _joined(value: Value | None) -> tuple[Value, Value, Kind] | None:
    """Match a value that joins two values along the last axis, as halves or as pairs; return both and the kind.

    ``None`` for other values.
    """
    value = source(value)
    node = value.producer if value is not None else None
    if value is None or node is None or not value.static or not value.sizes:
        return None
    if node.key == "Concat":
        live = [v for v in node.inputs if v is not None and v.size != 0]  # an empty rest of each head changes nothing
        halves = len(live) == 2 and all(v.static and 2 * v.sizes[-1] == value.sizes[-1] for v in live)
        return (live[0], live[1], "halves") if halves and _along_last(node, value) else None
    if node.key != "Reshape":
        return None
    pairs = source(node.input(0))
    join = pairs.producer if pairs is not None else None
    if pairs is None or join is None or join.key != "Concat" or not pairs.static or len(join.inputs) != 2:
        return None
    if pairs.sizes != [*value.sizes[:-1], value.sizes[-1] // 2, 2] or not _along_last(join, pairs):
        return None
    inside = [made_by(v, "Unsqueeze", "Reshape") for v in join.inputs]
    x1, x2 = (n.input(0) if n is not None else None for n in inside)
    if x1 is None or x2 is None or not x1.static or not x2.static:
        return None
    return (x1, x2, "pairs") if x1.sizes == x2.sizes == pairs.sizes[:-1] else None


_ALIKE = frozenset({"Cos", "Sin", "Cast", "Identity", "Unsqueeze", "Squeeze", "Neg", "Reshape", "Slice", "Concat"})
"""Operators that keep repeated numbers of the last axis repeated, if they keep its size."""
_BY_A_NUMBER = frozenset({"Mul", "Div", "Add", "Sub"})
_VIEWS = frozenset({"Unsqueeze", "Squeeze", "Reshape", "Identity", "Slice", "Concat"})
_FURTHEST = 24
"""The most nodes to go back from a table to the node that repeats its numbers."""


def _doubled(node: NodeFacts, index: int, kind: Kind) -> bool:
    """Return whether a table surely has each number twice along its last axis, as halves or as pairs.

    The numbers of a constant table show it; otherwise the nodes that compute the table.
    """
    for _ in range(_FURTHEST):
        value = node.inputs[index]
        if value is None or not value.static or not value.sizes:
            return False
        if value.constant:
            array = held(node, index)
            array = value.array() if array is None else array
            return array is not None and np.array_equal(*_two(array, kind))
        joined = _joined(value)
        if joined is not None and joined[2] == kind:
            return source(joined[0]) is source(joined[1])
        maker = value.producer
        if maker is None or not maker.inputs:
            return False
        under = maker.inputs[0]
        last = under.sizes[-1:] if under is not None and under.static else []
        if kind == "pairs" and maker.key == "Reshape" and last == [2]:
            wide = under.producer if under is not None else None
            inner = wide.input(0) if wide is not None and wide.key in ("Expand", "Tile") else None
            return inner is not None and inner.static and inner.sizes[-1:] == [1]
        if maker.key in _BY_A_NUMBER and len(maker.inputs) == 2:
            at = next((a for a, b in sides(maker) if scalar(maker.inputs[b]) is not None), None)
            if at is None:
                return False
            node, index = maker, at
            continue
        if last != value.sizes[-1:] or maker.key not in _ALIKE or (maker.key == "Concat" and len(maker.inputs) != 1):
            return False
        node, index = maker, 0
    return False


def _two(array: Array, kind: Kind) -> tuple[Array, Array]:
    """Cut an array along its last axis: two halves, or even and odd elements ("pairs")."""
    if kind == "pairs":
        return array[..., 0::2], array[..., 1::2]
    half = array.shape[-1] // 2
    return array[..., :half], array[..., half:]


def _halved(operand: Operand, kind: Kind) -> Operand:
    """A table without its repeated numbers: the first half of its last axis, or its even elements ("pairs")."""
    sizes = operand.facts.sizes
    shape = [*sizes[:-1], sizes[-1] // 2]

    def get(edit: Edit, shared: Shared) -> ir.Value:
        value = operand.get(edit, shared)

        def make() -> ir.Value:
            if value.const_value is not None and operand.facts.constant:
                return edit.constant(_two(value.const_value.numpy(), kind)[0], "table")
            end, step = (END, 2) if kind == "pairs" else (shape[-1], 1)
            numbers = [edit.integers([n], "slice") for n in (0, end, len(shape) - 1, step)]
            return edit.before("Slice", [value, *numbers], like=value, shape=shape)

        return once(shared, ("half", value, kind), make)

    return Operand(facts_of("table", operand.facts.graph, operand.facts.type, shape), get)


def _write_out(facts: NodeFacts, edit: Edit) -> str:
    node, old = edit.node, edit.node.outputs[0]
    if facts.attribute("scale", 1.0) != 1.0 or facts.attribute("is_packed_batching", 0):
        return "its scale is not 1, or its batches are packed (is_packed_batching)"
    known = [facts.input(index) for index in range(4)]
    if any(v is None or v.rank is None for v in known) or any(v is None for v in node.inputs[:4]):
        return "the shapes of its inputs are unknown"
    x, positions, cos = (v for v in known[:3] if v is not None)
    half = (cos.shape or (None,))[-1]
    if x.rank not in (3, 4) or not isinstance(half, int) or not x.static:
        return "the shapes of its inputs are unknown"
    part = int(facts.attribute("rotary_embedding_dim", 0))
    heads = int(facts.attribute("num_heads", 0)) or (x.sizes[1] if x.rank == 4 else x.sizes[2] // (part or 2 * half))
    value, rank3 = node.inputs[0], x.rank == 3
    sizes = [*x.sizes[:2], heads, x.sizes[2] // heads] if rank3 else x.sizes
    if rank3:
        value = edit.before("Reshape", [value, edit.integers(sizes, "shape")], like=old, shape=sizes)
    count, width = sizes[1] if rank3 else sizes[2], sizes[3]
    at = node.inputs[1]
    if positions.rank == 1:
        at = edit.before("Add", [at, edit.integers(range(count), "offsets")], dtype=ir.DataType.INT64, shape=[count])
    tables = []
    for table in node.inputs[2:4]:
        read = edit.before("Gather", [table, at], {"axis": 0}, like=table)
        lead = x.sizes[0] if positions.rank == 2 else 1
        spread = [lead, count, 1, half] if rank3 else [lead, 1, count, half]
        tables.append(edit.before("Reshape", [read, edit.integers(spread, "shape")], like=table, shape=spread))
    rest = None
    if 2 * half < width:
        rest = _part_of(edit, value, old, 2 * half, width, 1)
        value = _part_of(edit, value, old, 0, 2 * half, 1)
    pairs = bool(facts.attribute("interleaved", 0))
    ends = ((0, END, 2), (1, END, 2)) if pairs else ((0, half, 1), (half, 2 * half, 1))
    x1, x2 = (_part_of(edit, value, old, *end) for end in ends)

    def product(one: ir.Value, other: ir.Value) -> ir.Value:
        return edit.before("Mul", [one, other], like=old)

    real = edit.before("Sub", [product(x1, tables[0]), product(x2, tables[1])], like=old)
    imaginary = edit.before("Add", [product(x2, tables[0]), product(x1, tables[1])], like=old)
    joined = [real, imaginary]
    if pairs:
        to = edit.integers([*sizes[:3], half, 1], "shape")
        joined = [edit.before("Reshape", [one, to], like=old) for one in joined]
    done = edit.before("Concat", joined, {"axis": -1}, like=old)
    if pairs:
        done = edit.before("Reshape", [done, edit.integers([*sizes[:3], 2 * half], "shape")], like=old)
    if rest is not None:
        done = edit.before("Concat", [done, rest], {"axis": -1}, like=old)
    if rank3:
        done = edit.before("Reshape", [done, edit.integers(x.sizes, "shape")], like=old, shape=x.sizes)
    return edit.become(done)


def _part_of(edit: Edit, value: ir.Value | None, like: ir.Value, start: int, end: int, step: int) -> ir.Value:
    """Write a Slice of the last axis of a value of four dimensions, and return its output."""
    return edit.before("Slice", [value, *(edit.integers([n], "slice") for n in (start, end, 3, step))], like=like)


ROTARY = Form("rotary", "RotaryEmbedding", frozenset({"Add", "Concat", "Reshape"}), _match, _write_out, on_cpu=True)
