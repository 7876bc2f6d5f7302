"""MultiHeadAttention: a product of queries and keys, scaled and masked, its Softmax, and the product with the values.

Measured (``tests/benchmarks/fused_kernels.py``): DirectML's kernel takes a bias of [batch, heads, queries, keys] only,
so that masks are spread out; one serves all nodes that have the same mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import onnx_ir as ir

from dmlprep.fused.form import Form, Match, Operand, Shared, given, view
from dmlprep.fused.reading import made_by, reader, scalar, sides, source
from dmlprep.quirks.editing import Edit
from dmlprep.targets.facts import NodeFacts, Value

__all__ = ["ATTENTION"]

_RANK = 4
_TYPES = ("float", "float16")

_LOWEST = -1e30
"""An FP32 number from here on has no sum with a score other than itself."""

_MOST_READ = 1 << 24
"""Elements of a constant mask that is looked at."""

_FURTHEST = 12
"""Nodes between the product and what is one vector for each position."""


@dataclass(frozen=True)
class _Mask:
    """What is added to the scores: ``value``; or ``number`` where ``value`` is true (false: where ``inverted``)."""

    node: NodeFacts
    index: int
    value: Value
    number: float | None = None
    inverted: bool = False

    @property
    def sizes(self) -> list[int]:
        """As four dimensions."""
        return [1] * (_RANK - len(self.value.sizes)) + self.value.sizes

    @property
    def key(self) -> object:
        """The same for masks that are the same numbers: exporters write one again for each layer."""
        array = self.array()
        if array is not None:
            return ("constant", array.shape, sha256(np.ascontiguousarray(array).tobytes()).digest())
        made = made_by(self.value, "Where")
        if made is None or self.number is not None:
            return (_same(self.value), self.number, self.inverted)
        return ("Where", *(_same(v) if (n := scalar(v)) is None else n for v in made.inputs))

    def array(self) -> np.ndarray[Any, Any] | None:
        """The numbers of a mask that is a constant, where it is not too large to look at."""
        if not self.value.constant or self.number is not None or (self.value.size or 0) > _MOST_READ:
            return None
        held = self.node.ir.inputs[self.index]
        tensor = held.const_value if held is not None else None
        return np.asarray(tensor.numpy()) if tensor is not None else None


def _same(value: Value | None) -> int:
    return id(source(value))


@dataclass(frozen=True)
class _Scores:
    """The Softmax's input, read back to the product."""

    product: NodeFacts
    scale: float
    masks: tuple[_Mask, ...]


def _match(last: NodeFacts) -> Match | str | None:
    weights = _weights(last.input(0))
    if weights is None:
        return None
    softmax, guard = weights
    scores = _scores(softmax)
    if scores is None:
        return None
    q, k, v, whole = scores.product.input(0), scores.product.input(1), last.input(1), softmax.output()
    if q is None or k is None or v is None or whole is None or scores.product.graph != last.graph:
        return None
    if not all(value.static and 0 not in value.sizes for value in (q, k, v, whole)):
        return "its sizes are not known"
    if any(len(value.sizes) != _RANK for value in (q, k, v, whole)):
        return "it has not four dimensions"
    batch, heads, queries, keys = whole.sizes
    size, wide = q.sizes[3], v.sizes[3]
    wanted = ([batch, heads, queries, size], [batch, heads, size, keys], [batch, heads, keys, wide])
    if [q.sizes, k.sizes, v.sizes] != list(wanted):
        return "its heads or batches are broadcast"
    if whole.type not in _TYPES:
        return f"its data are {whole.type}"
    if _read_elsewhere(softmax, last):
        return "its weights are read elsewhere"
    turned = reader(last.output(), "Transpose")
    if turned is None or list(turned.attribute("perm", [])) != [0, 2, 1, 3]:
        return "its heads are not brought together behind it"
    if guard is not None and guard.key == "Equal" and not _asks_for_empty(guard, scores.masks):
        return None
    rows: Operand | None = None
    if guard is not None and scores.masks and not _never_empty(scores.masks):
        if _spread(scores.masks)[1] != 1:
            return "which of its rows are empty depends on the head"
        rows = _empty_rows(scores.masks, whole, last)
    mask = _bias(scores.masks, whole, last, cleared=rows is not None) if scores.masks else None
    left, query = _laid(scores.product, 0, "BNLD")
    right, key = _laid(scores.product, 1, "BNDL")
    _, value = _laid(last, 1, "BNLD", scaled=False)
    scale = scores.scale * left * right
    if not np.isfinite(scale) or scale == 0:
        return None
    giver = reader(turned.output(), "Reshape") or turned
    result, flat = giver.output(), [batch, queries, heads * wide]
    if result is None or not result.static:
        return "its sizes are not known"
    return Match(
        at=last,
        gives=[(giver, 0)],
        inputs=[query, key, value, *([None, None, mask] if mask is not None else [])],
        attributes={"num_heads": heads, "scale": scale},
        reshaped=[] if result.sizes == flat else flat,
        cleared=rows,
    )


def _weights(value: Value | None) -> tuple[NodeFacts, NodeFacts | None] | None:
    """The Softmax over the last axis that gives these weights, and what asks for rows to be zeros, where that is."""
    guard: NodeFacts | None = None
    cleared = made_by(value, "Where")
    if cleared is not None:
        if len(cleared.inputs) != 3 or scalar(cleared.input(1)) != 0.0:
            return None
        guard = made_by(cleared.input(0), "IsNaN", "Equal")
        value = cleared.input(2)
        if guard is None or (guard.key == "IsNaN" and source(guard.input(0)) is not source(value)):
            return None
    softmax = made_by(value, "Softmax")
    data = softmax.input(0) if softmax is not None else None
    if softmax is None or data is None or data.rank is None:
        return None
    axis = softmax.attribute("axis", -1 if softmax.since >= 13 else 1)
    return (softmax, guard) if axis % data.rank == data.rank - 1 else None


def _scores(softmax: NodeFacts) -> _Scores | None:
    masks: list[_Mask] = []
    whole = softmax.output()
    node: NodeFacts | None = softmax
    index = 0
    for _ in range(_FURTHEST):
        made = made_by(node.inputs[index], "Add", "Where") if node is not None else None
        if made is None or whole is None:
            break
        found = _masked(made, whole)
        if found is None:
            return None
        index, mask = found
        array = mask.array()
        if array is None or array.any():  # exporters write a mask of zeros where there is none
            masks.append(mask)
        node = made
    assert node is not None
    scale, data = _unscaled(node.inputs[index])
    product = made_by(data, "MatMul")
    return _Scores(product, scale, tuple(masks)) if product is not None else None


def _masked(node: NodeFacts, whole: Value) -> tuple[int, _Mask] | None:
    """Where the scores come into a node that masks them, and the mask."""
    if node.key == "Add":
        for one, other in sides(node):
            mask = node.inputs[other]
            if mask is not None and _fits(mask, whole, whole.type) and _from_product(node.inputs[one]):
                return one, _Mask(node, other, mask)
        return None
    condition = node.input(0)
    for one, other in ((1, 2), (2, 1)):
        number = scalar(node.input(other))
        low = number is not None and (number == -np.inf or (whole.type == "float" and number <= _LOWEST))
        if low and condition is not None and _fits(condition, whole, "bool") and _from_product(node.input(one)):
            return one, _Mask(node, 0, condition, number, inverted=other == 2)
    return None


def _fits(mask: Value, whole: Value, kind: str) -> bool:
    if not mask.static or not whole.static or mask.type != kind or len(mask.sizes) > _RANK or not mask.sizes:
        return False
    spread = all(have in (1, want) for have, want in zip(mask.sizes[::-1], whole.sizes[::-1], strict=False))
    return spread and mask.sizes[-1] == whole.sizes[-1]


def _from_product(value: Value | None) -> bool:
    """Whether a value is scores: a product, scaled and masked or not."""
    for _ in range(_FURTHEST):
        _, value = _unscaled(value)
        if made_by(value, "MatMul") is not None:
            return True
        node = made_by(value, "Add", "Where")
        if node is None:
            return False
        value = next((v for v in node.inputs if v is not None and v.producer is not None and v.rank == _RANK), None)
    return False


def _unscaled(value: Value | None) -> tuple[float, Value | None]:
    """The number that a value is multiplied by, and the value without it."""
    factor = 1.0
    while (node := made_by(value, "Mul", "Div")) is not None and len(node.inputs) == 2:
        found = _factor(node)
        if found is None:
            break
        at, number = found
        factor, value = factor * number, node.inputs[at]
    return factor, value


def _factor(node: NodeFacts) -> tuple[int, float] | None:
    """Which input is multiplied by a number, and the number."""
    for one, other in sides(node):
        number, data, result = scalar(node.inputs[other]), node.inputs[one], node.output()
        if number is None or data is None or result is None or data.rank != result.rank:
            continue
        if node.key == "Mul":
            return one, number
        if one == 0 and number:
            return one, 1 / number
    return None


def _read_elsewhere(softmax: NodeFacts, last: NodeFacts) -> bool:
    stack = [softmax]
    while stack:
        value = stack.pop().output()
        if value is None or value.graph_output:
            return True
        for node in value.consumers:
            if node is last:
                continue
            if node.key not in ("IsNaN", "Where", "Identity") or node.graph != last.graph:
                return True
            stack.append(node)
    return False


def _never_empty(masks: Sequence[_Mask]) -> bool:
    """Whether a mask is known to leave each query a key."""
    array = masks[0].array() if len(masks) == 1 else None
    return array is not None and not bool(np.isneginf(array.astype(np.float32).max(axis=-1)).any())


def _asks_for_empty(guard: NodeFacts, masks: Sequence[_Mask]) -> bool:
    """Whether a node compares the largest of each row of the one mask with -inf."""
    for one, other in sides(guard):
        most = made_by(guard.inputs[one], "ReduceMax")
        if most is None or scalar(guard.inputs[other]) != -np.inf or len(masks) != 1:
            continue
        asked, axes = most.input(0), most.input(1)
        which = axes.integers() if axes is not None else most.attribute("axes")
        if asked is None or asked.rank is None or which is None or not most.attribute("keepdims", 1):
            continue
        if [a % asked.rank for a in which] == [asked.rank - 1]:
            return masks[0].number is None and _Mask(most, 0, asked).key == masks[0].key
    return False


def _sum(masks: Sequence[_Mask], whole: Value, edit: Edit, shared: Shared) -> ir.Value:
    """All masks as numbers to add, in the smallest shape."""
    kind = whole.dtype
    assert kind is not None
    key = ("mask", *(mask.key for mask in masks))
    if key in shared:
        return shared[key]
    total: ir.Value | None = None
    for mask in masks:
        value = mask.node.ir.inputs[mask.index]
        assert value is not None
        if mask.number is not None:
            numbers = [_number(n, kind, edit, shared) for n in (mask.number, 0.0)]
            if mask.inverted:
                numbers.reverse()
            value = edit.before("Where", [value, *numbers], dtype=kind, shape=mask.value.sizes)
        total = value if total is None else edit.before("Add", [total, value], dtype=kind)
    assert total is not None
    shared[key] = total
    return total


def _number(number: float, kind: ir.DataType, edit: Edit, shared: Shared) -> ir.Value:
    key = ("number", number, kind)
    if key not in shared:
        shared[key] = edit.constant(np.array(number, kind.numpy()), "number")
    return shared[key]


def _spread(masks: Sequence[_Mask]) -> list[int]:
    """The smallest shape that all masks have a place in."""
    return [max(sizes) for sizes in zip(*(mask.sizes for mask in masks), strict=True)]


def _bias(masks: Sequence[_Mask], whole: Value, last: NodeFacts, *, cleared: bool) -> Operand:
    """The masks as one of [batch, heads, queries, keys].

    Args:
        cleared: rows that are -inf throughout are zeros.
    """
    facts = Value("bias", last.graph)
    facts.type, facts.shape = whole.type, whole.shape

    def get(edit: Edit, shared: Shared) -> ir.Value:
        total, kind = _sum(masks, whole, edit, shared), whole.dtype
        assert kind is not None
        key = ("bias", total, cleared, tuple(whole.sizes))
        if key not in shared:
            value = total
            if cleared:
                empty = _empty(total, last, kind, edit, shared)
                value = edit.before("Where", [empty, _number(0.0, kind, edit, shared), value], dtype=kind)
            if max(len(mask.value.sizes) for mask in masks) < _RANK or _spread(masks) != whole.sizes:
                sizes = edit.integers(whole.sizes, "shape")
                value = edit.before("Expand", [value, sizes], dtype=kind, shape=whole.sizes)
            shared[key] = value
        return shared[key]

    return Operand(facts, get)


def _empty(total: ir.Value, last: NodeFacts, kind: ir.DataType, edit: Edit, shared: Shared) -> ir.Value:
    """Whether each row of a mask is -inf throughout, as one element in the place of its last axis."""
    key = ("empty", total)
    if key not in shared:
        axes = [edit.integers([-1], "axes")] if last.opset >= 18 else []
        most = edit.before("ReduceMax", [total, *axes], {} if axes else {"axes": [-1]}, dtype=kind)
        lowest = _number(-np.inf, kind, edit, shared)
        shared[key] = edit.before("Equal", [most, lowest], dtype=ir.DataType.BOOL)
    return shared[key]


def _empty_rows(masks: Sequence[_Mask], whole: Value, last: NodeFacts) -> Operand:
    """Queries that may look at no key, bool[batch or 1, queries or 1, 1]."""
    batch, _, queries, _ = _spread(masks)
    shape = [batch, queries, 1]
    facts = Value("empty", last.graph)
    facts.type, facts.shape = "bool", tuple(shape)

    def get(edit: Edit, shared: Shared) -> ir.Value:
        total, kind = _sum(masks, whole, edit, shared), whole.dtype
        assert kind is not None
        key = ("rows", total)
        if key not in shared:
            empty = _empty(total, last, kind, edit, shared)
            shared[key] = edit.before(
                "Reshape", [empty, edit.integers(shape, "shape")], dtype=ir.DataType.BOOL, shape=shape
            )
        return shared[key]

    return Operand(facts, get)


def _laid(node: NodeFacts, index: int, axes: str, *, scaled: bool = True) -> tuple[float, Operand]:
    """The number that a value is multiplied by, and the value as [batch, length, heads * size].

    Args:
        axes: what the axes of the value are: B, N for heads, L for the length, D for the size of a head.
        scaled: whether a number that it is multiplied by is left out.
    """
    factor, graph = 1.0, node.graph
    for _ in range(_FURTHEST):
        value = node.inputs[index]
        made = value.producer if value is not None and axes != "BLND" else None
        if value is None or made is None or made.graph != graph or not all(v is not None for v in made.inputs):
            break
        found = _factor(made) if scaled and made.key in ("Mul", "Div") else None
        turned = _turned_in_three(made, value) if axes == "BNDL" else None
        if made.key == "Identity":
            node, index = made, 0
        elif found is not None and source(value) is not None:
            (index, number), node = found, made
            factor *= number
        elif made.key == "Transpose" and sorted(made.attribute("perm", [])) == list(range(_RANK)):
            before = [""] * _RANK
            for to, where in enumerate(made.attribute("perm")):
                before[where] = axes[to]
            axes, node, index = "".join(before), made, 0
        elif turned is not None:
            axes, node, index = "BNLD", turned, 0
        else:
            break
    return factor, _flat(node, index, axes)


def _turned_in_three(node: NodeFacts, value: Value) -> NodeFacts | None:
    """The first of Reshape to three dimensions, Transpose, Reshape back, which turn the last two axes."""
    turn = made_by(node.input(0), "Transpose") if node.key == "Reshape" else None
    first = made_by(turn.input(0), "Reshape") if turn is not None else None
    if turn is None or first is None or list(turn.attribute("perm", [])) != [0, 2, 1]:
        return None
    data, three = first.input(0), first.output()
    if data is None or three is None or not (data.static and three.static and value.static):
        return None
    batch, heads, size, length = value.sizes
    fits = three.sizes == [batch * heads, length, size] and data.sizes == [batch, heads, length, size]
    return first if fits else None


def _flat(node: NodeFacts, index: int, axes: str) -> Operand:
    operand = given(node, index)
    sizes = dict(zip(axes, operand.facts.sizes, strict=True))
    shape = [sizes["B"], sizes["L"], sizes["N"] * sizes["D"]]
    if axes != "BLND":
        operand = _transposed(operand, [axes.index(axis) for axis in "BLND"])
    else:
        made = made_by(operand.facts, "Reshape")
        before = made.input(0) if made is not None else None
        if made is not None and before is not None and before.static and before.sizes == shape:
            return given(made, 0)
    return view(operand, shape, "heads")


def _transposed(operand: Operand, perm: list[int]) -> Operand:
    shape = [operand.facts.sizes[axis] for axis in perm]
    facts = Value("turned", operand.facts.graph)
    facts.type, facts.shape = operand.facts.type, tuple(shape)

    def get(edit: Edit, shared: Shared) -> ir.Value:
        value = operand.get(edit, shared)
        return edit.before("Transpose", [value], {"perm": perm}, like=value, shape=shape)

    return Operand(facts, get)


_HANDLED = frozenset({0, 1, 2, 5})
"""Inputs that are written out: query, key, value, bias."""


def _write_out(facts: NodeFacts, edit: Edit) -> str:
    node, old = edit.node, edit.node.outputs[0]
    if any(value is not None and index not in _HANDLED for index, value in enumerate(node.inputs)):
        return "it has a bias of its projections, a mask of its keys, or a cache"
    if any(v.name and (v.uses() or v.is_graph_output()) for v in node.outputs[1:]):
        return "its caches are read"
    if facts.attribute("unidirectional", 0):
        return "it is causal without a mask"
    known = [facts.input(index) for index in range(3)]
    if any(v is None or not v.static or len(v.sizes) != 3 for v in known):
        return "the shapes of its inputs are not known"
    heads, kind = int(facts.attribute("num_heads", 0)), known[0].dtype if known[0] is not None else None
    if not heads or kind is None:
        return "its heads are not known"
    apart: list[ir.Value] = []
    for value, fact in zip(node.inputs[:3], known, strict=True):
        assert fact is not None
        batch, length, width = fact.sizes
        to = edit.integers([batch, length, heads, width // heads], "shape")
        split = edit.before("Reshape", [value, to], dtype=kind, shape=[batch, length, heads, width // heads])
        perm = [0, 2, 3, 1] if len(apart) == 1 else [0, 2, 1, 3]
        apart.append(edit.before("Transpose", [split], {"perm": perm}, dtype=kind))
    assert known[0] is not None
    assert known[2] is not None
    batch, queries, width = known[0].sizes
    scale = float(facts.attribute("scale", 0.0)) or (width // heads) ** -0.5
    query = edit.before("Mul", [apart[0], edit.constant(np.array(scale, kind.numpy()), "scale")], dtype=kind)
    scores = edit.before("MatMul", [query, apart[1]], dtype=kind)
    if len(node.inputs) > 5 and node.inputs[5] is not None:
        scores = edit.before("Add", [scores, node.inputs[5]], dtype=kind)
    weights = edit.before("Softmax", [scores], {"axis": 3}, dtype=kind)
    mixed = edit.before("MatMul", [weights, apart[2]], dtype=kind)
    together = edit.before("Transpose", [mixed], {"perm": [0, 2, 1, 3]}, dtype=kind)
    shape = [batch, queries, known[2].sizes[2]]
    return edit.become(edit.before("Reshape", [together, edit.integers(shape, "shape")], like=old, shape=shape))


ATTENTION = Form(
    option="attention",
    op_type="MultiHeadAttention",
    anchors=frozenset({"MatMul"}),
    match=_match,
    write_out=_write_out,
    on_cpu=True,
)
