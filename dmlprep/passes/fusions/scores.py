"""Match attention: the scores (queries times keys, scaled and masked), Softmax, and the product with the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

import numpy as np

from dmlprep.directml.quirks.patterns import scalar
from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.graph.analysis.attributes import plain_attributes
from dmlprep.graph.analysis.folding import evaluate
from dmlprep.passes.fusions.reading import axes_of, held, made_by, reader, sides, source
from dmlprep.portable.arrays import Array

RANK = 4
"""Rank of scores and masks: [batch, heads, queries, keys]."""

_TYPES = ("float", "float16")

_LOWEST = -1e30
"""Numbers up to this one replace a score when they are added to it in FP32: the score is lost in rounding."""

_MOST = 1 << 22
"""The most elements of each value that is computed to find a mask: the mask of 2048 positions, 32 MiB as int64."""

_NODES = 32
"""The most nodes that are computed to find a mask."""

_MOST_READ = 1 << 20
"""The most elements of a constant mask whose numbers are compared with others."""

FURTHEST = 12
"""The most nodes to go back from a MatMul to [batch, length, heads * size], or from the Softmax to the MatMul."""


@dataclass(frozen=True)
class Mask:
    """A term that is added to the scores: ``value``; or ``number`` where ``value`` is true (false if ``inverted``).

    ``value`` is the input ``index`` of ``node``.
    """

    node: NodeFacts
    index: int
    value: Value
    number: float | None = None
    inverted: bool = False

    @property
    def sizes(self) -> list[int]:
        """The shape of ``value`` in four dimensions, with 1 for missing axes in front."""
        return [1] * (RANK - len(self.value.sizes)) + self.value.sizes

    @property
    def key(self) -> object:
        """A key: masks with the same key add equal numbers. Exporters repeat a constant mask for each layer.

        Masks that different nodes compute have different keys, except a Where of the same inputs.
        """
        array = self.array()
        if array is not None:
            return ("constant", array.shape, sha256(np.ascontiguousarray(array).tobytes()).digest())
        where = made_by(self.value, "Where")
        if where is None or self.number is not None:
            return (id(source(self.value)), self.number, self.inverted)
        return ("Where", *(id(source(v)) if (n := scalar(v)) is None else n for v in where.inputs))

    def array(self) -> Array | None:
        """The numbers of a constant mask that is added; ``None`` for other masks, and above 1 Mi elements."""
        return None if self.number is not None else self._held(_MOST_READ)

    def numbers(self) -> Array | None:
        """The numbers that the mask adds; ``None`` if they are unknown, or more than 4 Mi."""
        array = self._held(_MOST) if self.value.constant else _computed(self.value)
        if array is None or self.number is None:
            return array
        return np.where(array != self.inverted, np.float32(self.number), np.float32(0.0))

    def _held(self, most: int) -> Array | None:
        if not self.value.constant or (self.value.size or 0) > most:
            return None
        return held(self.node, self.index)


@dataclass(frozen=True)
class Attention:
    """Nodes that compute attention, up to the Transpose that brings the heads of the result together.

    Attributes:
        last: the MatMul of the attention weights and the values.
        product: the MatMul of queries and keys.
        scale, masks: the factor of ``product``, and the terms that are added to it.
        guarded: whether the nodes set the weights of queries without any key to 0.
        whole: the attention weights, [batch, heads, queries, keys].
        size, wide: number of elements of a head of queries and keys, and of a head of values.
        giver: the last node of the attention: the Transpose, or a Reshape after it.
    """

    last: NodeFacts
    product: NodeFacts
    scale: float
    masks: tuple[Mask, ...]
    guarded: bool
    whole: Value
    size: int
    wide: int
    giver: NodeFacts


def attention(last: NodeFacts) -> Attention | str | None:
    """Match the attention whose MatMul with the values is ``last``.

    ``None`` if the nodes are no attention; a reason (text) if they are, but cannot be fused.
    """
    weights = _weights(last.input(0))
    if weights is None:
        return None
    softmax, guard = weights
    scores = _scores(softmax)
    if scores is None:
        return None
    product, scale, masks = scores
    q, k, v, whole = product.input(0), product.input(1), last.input(1), softmax.output()
    if q is None or k is None or v is None or whole is None or product.graph != last.graph:
        return None
    if not all(value.static and 0 not in value.sizes for value in (q, k, v, whole)):
        return "the sizes of its queries, keys or values are unknown"
    if any(len(value.sizes) != RANK for value in (q, k, v, whole)):
        return "its queries, keys or values do not have four dimensions"
    batch, heads, queries, keys = whole.sizes
    size, wide = q.sizes[3], v.sizes[3]
    wanted = ([batch, heads, queries, size], [batch, heads, size, keys], [batch, heads, keys, wide])
    if [q.sizes, k.sizes, v.sizes] != list(wanted):
        return "its heads or batches are broadcast"
    if whole.type not in _TYPES:
        return f"its data are {whole.type}"
    if _read_elsewhere(softmax, last):
        return "other nodes read its softmax weights"
    turned = reader(last.output(), "Transpose")
    if turned is None or list(turned.attribute("perm", [])) != [0, 2, 1, 3]:
        return "no Transpose merges its heads after it"
    if guard is not None and guard.key == "Equal" and not _asks_for_empty(guard, masks):
        return None
    giver = reader(turned.output(), "Reshape") or turned
    result = giver.output()
    if result is None or not result.static:
        return "the sizes of its queries, keys or values are unknown"
    return Attention(last, product, scale, masks, guard is not None, whole, size, wide, giver)


def _weights(value: Value | None) -> tuple[NodeFacts, NodeFacts | None] | None:
    """Match attention weights: return the Softmax over the last axis that computes them, and the node that guards them.

    The guard finds queries without any key, whose weights a Where sets to 0; ``None`` without a guard.
    """
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


def _scores(softmax: NodeFacts) -> tuple[NodeFacts, float, tuple[Mask, ...]] | None:
    """Match the scores that a Softmax reads: return the MatMul of queries and keys, its factor, and the masks.

    Constant masks of zeros are left out. ``None`` if the input is computed in another way.
    """
    masks: list[Mask] = []
    whole, value = softmax.output(), softmax.inputs[0]
    for _ in range(FURTHEST):
        node = made_by(value, "Add", "Where")
        if node is None or whole is None:
            break
        masked = _masked(node, whole)
        if masked is None:
            return None
        index, mask = masked
        array = mask.array()
        if array is None or array.any():  # exporters may write a mask of zeros
            masks.append(mask)
        value = node.inputs[index]
    scale, data = _unscaled(value)
    product = made_by(data, "MatMul")
    return (product, scale, tuple(masks)) if product is not None else None


def _masked(node: NodeFacts, whole: Value) -> tuple[int, Mask] | None:
    """Match a node (Add or Where) that masks scores: return the index of the scores among its inputs, and the mask.

    ``None`` for other nodes. ``whole``: the attention weights.
    """
    if node.key == "Add":
        for one, other in sides(node):
            mask = node.inputs[other]
            if mask is not None and _fits(mask, whole, whole.type) and _from_product(node.inputs[one]):
                return one, Mask(node, other, mask)
        return None
    condition = node.input(0)
    for one, other in ((1, 2), (2, 1)):
        number = scalar(node.input(other))
        low = number is not None and (number == -np.inf or (whole.type == "float" and number <= _LOWEST))
        if low and condition is not None and _fits(condition, whole, "bool") and _from_product(node.input(one)):
            return one, Mask(node, 0, condition, number, inverted=other == 2)
    return None


def _fits(mask: Value, whole: Value, kind: str) -> bool:
    if not mask.static or not whole.static or mask.type != kind or len(mask.sizes) > RANK or not mask.sizes:
        return False
    spread = all(have in (1, want) for have, want in zip(mask.sizes[::-1], whole.sizes[::-1], strict=False))
    return spread and mask.sizes[-1] == whole.sizes[-1]


def _from_product(value: Value | None) -> bool:
    """Return whether a value is computed from a MatMul by scaling and masking only, so that it may be scores."""
    for _ in range(FURTHEST):
        _, value = _unscaled(value)
        if made_by(value, "MatMul") is not None:
            return True
        node = made_by(value, "Add", "Where")
        if node is None:
            return False
        value = next((v for v in node.inputs if v is not None and v.producer is not None and v.rank == RANK), None)
    return False


def _unscaled(value: Value | None) -> tuple[float, Value | None]:
    """Go back from a value over constant factors; return their product, and the value before them."""
    times = 1.0
    while (node := made_by(value, "Mul", "Div")) is not None and len(node.inputs) == 2:
        by = factor(node)
        if by is None:
            break
        times, value = times * by[1], node.inputs[by[0]]
    return times, value


def factor(node: NodeFacts) -> tuple[int, float] | None:
    """For a Mul or Div by a constant number, the index of the other input, and the number (of a Div: its reciprocal).

    ``None`` for other nodes.
    """
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


def never_empty(masks: Sequence[Mask]) -> bool:
    """Return whether there is only one mask, which is an added constant and leaves each query at least one key."""
    array = masks[0].array() if len(masks) == 1 else None
    return array is not None and not bool(np.isneginf(array.astype(np.float32).max(axis=-1)).any())


def _asks_for_empty(guard: NodeFacts, masks: Sequence[Mask]) -> bool:
    """Return whether ``guard``, an Equal, compares the maximum of each row of the mask with -inf.

    False for several masks.
    """
    for one, other in sides(guard):
        most = made_by(guard.inputs[one], "ReduceMax")
        if most is None or scalar(guard.inputs[other]) != -np.inf or len(masks) != 1:
            continue
        asked, axes = most.input(0), axes_of(most)
        if asked is None or asked.rank is None or axes is None or not most.attribute("keepdims", 1):
            continue
        if [a % asked.rank for a in axes] == [asked.rank - 1]:
            return masks[0].number is None and Mask(most, 0, asked).key == masks[0].key
    return False


def spread(masks: Sequence[Mask]) -> list[int]:
    """The smallest shape to which all masks broadcast, in four dimensions."""
    return [max(sizes) for sizes in zip(*(mask.sizes for mask in masks), strict=True)]


@lru_cache(maxsize=1)  # the layers of a model read the same mask
def _computed(value: Value) -> Array | None:
    """Compute the numbers of a value from constants.

    ``None`` if they are unknown, may differ between machines, or are too many.
    """
    return _value(value, {}, [_NODES])


def _value(value: Value, known: dict[int, Array], budget: list[int]) -> Array | None:
    node = value.producer
    if (array := known.get(id(value))) is not None:
        return array
    if node is None or node.domain or node.subgraphs or len(node.outputs) != 1 or not budget[0]:
        return None
    budget[0] -= 1
    inputs: list[Array | None] = []
    for index, operand in enumerate(node.inputs):
        array = None if operand is None else _operand(node, index, operand, known, budget)
        if operand is not None and array is None:
            return None
        inputs.append(array)
    outputs = evaluate(node.op, node.opset, inputs, plain_attributes(node.ir), 1, lambda elements: elements <= _MOST)
    if outputs is None:
        return None
    known[id(value)] = outputs[0]
    return outputs[0]


def _operand(node: NodeFacts, index: int, value: Value, known: dict[int, Array], budget: list[int]) -> Array | None:
    if not value.constant:
        return _value(value, known, budget)
    if value.size is None or value.size > _MOST:
        return None
    array = held(node, index)
    return value.array() if array is None else array
