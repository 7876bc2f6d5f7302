"""Find queries, keys and values of attention as [batch, length, heads * size], and write attention in plain nodes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.passes.fusions.form import Operand, Shared, facts_of, input_operand, view
from dmlprep.passes.fusions.reading import made_by, source
from dmlprep.passes.fusions.scores import FURTHEST, RANK, factor


def laid(node: NodeFacts, index: int, axes: str, *, scaled: bool = True, once: bool = False) -> tuple[float, Operand]:
    """Return a factor and an operand [batch, length, heads * size]: their product is input ``index`` of a node.

    The search goes back over nodes that only move, reshape or scale the value, to save nodes.

    Args:
        axes: the meaning of the value's axes: B for batch, N for heads, L for the length, D for the size of a head.
        scaled: whether to go back over constant factors; otherwise the factor is 1.
        once: whether to go back over nodes that repeat each head for several queries.
    """
    times, graph = 1.0, node.graph
    for _ in range(FURTHEST):
        value = node.inputs[index]
        maker = value.producer if value is not None and (once or axes != "BLND") else None
        if value is None or maker is None or maker.graph != graph or not all(v is not None for v in maker.inputs):
            break
        scaling = factor(maker) if scaled and maker.key in ("Mul", "Div") else None
        turned = _turned_in_three(maker, value, once=once) if axes == "BNDL" else None
        before = _before_repeating(maker, value.sizes, axes.index("N")) if once and value.static else None
        if maker.key == "Identity":
            node, index = maker, 0
        elif before is not None:
            node, index = before, 0
        elif axes == "BLND":
            break
        elif scaling is not None and source(value) is not None:
            (index, number), node = scaling, maker
            times *= number
        elif maker.key == "Transpose" and sorted(maker.attribute("perm", [])) == list(range(RANK)):
            was = [""] * RANK
            for to, where in enumerate(maker.attribute("perm")):
                was[where] = axes[to]
            axes, node, index = "".join(was), maker, 0
        elif turned is not None:
            axes, node, index = "BNLD", turned, 0
        else:
            break
    return times, _flat(node, index, axes)


def _turned_in_three(node: NodeFacts, value: Value, *, once: bool) -> NodeFacts | None:
    """Match three nodes that swap the last two axes: Reshape to three dimensions, Transpose, Reshape (``node``).

    Args:
        value: the output of ``node``.
        once: whether to include earlier nodes that repeat heads, if their last node is the first Reshape.

    Returns:
        the first of the nodes; ``None`` if they do not match.
    """
    turn = made_by(node.input(0), "Transpose") if node.key == "Reshape" else None
    first = made_by(turn.input(0), "Reshape") if turn is not None else None
    if turn is None or first is None or list(turn.attribute("perm", [])) != [0, 2, 1]:
        return None
    data, three = first.input(0), first.output()
    if data is None or three is None or not (data.static and three.static and value.static):
        return None
    batch, heads, size, length = value.sizes
    if three.sizes != [batch * heads, length, size]:
        return None
    if data.sizes == [batch, heads, length, size]:
        return first
    return _before_repeating(first, [batch, heads, length, size], 1) if once else None


def _before_repeating(node: NodeFacts, sizes: list[int], heads: int) -> NodeFacts | None:
    """Match nodes that repeat each head several times: Unsqueeze or Reshape, Expand or Tile, Reshape (``node``).

    Args:
        sizes: shape of the result, in four dimensions; ``heads`` is the axis of the heads.

    Returns:
        the first of the nodes; ``None`` if they do not match.
    """
    spread = made_by(node.input(0), "Expand", "Tile") if node.key == "Reshape" else None
    first = made_by(spread.input(0), "Unsqueeze", "Reshape") if spread is not None else None
    if spread is None or first is None or first.graph != node.graph:
        return None
    many, one, data = spread.output(), spread.input(0), first.input(0)
    if many is None or one is None or data is None or not (many.static and one.static and data.static):
        return None
    if len(data.sizes) != RANK or len(many.sizes) != RANK + 1:
        return None
    before, groups, after = data.sizes[:heads], data.sizes[heads], data.sizes[heads + 1 :]
    times = many.sizes[heads + 1]
    fits = one.sizes == [*before, groups, 1, *after] and many.sizes == [*before, groups, times, *after]
    return first if fits and sizes == [*before, groups * times, *after] else None


def _flat(node: NodeFacts, index: int, axes: str) -> Operand:
    operand = input_operand(node, index)
    sizes = dict(zip(axes, operand.facts.sizes, strict=True))
    shape = [sizes["B"], sizes["L"], sizes["N"] * sizes["D"]]
    if axes != "BLND":
        operand = _transposed(operand, [axes.index(axis) for axis in "BLND"])
    else:
        reshape = made_by(operand.facts, "Reshape")
        before = reshape.input(0) if reshape is not None else None
        if reshape is not None and before is not None and before.static and before.sizes == shape:
            return input_operand(reshape, 0)
    return view(operand, shape, "heads")


def _transposed(operand: Operand, perm: list[int]) -> Operand:
    shape = [operand.facts.sizes[axis] for axis in perm]

    def get(edit: Edit, shared: Shared) -> ir.Value:
        value = operand.get(edit, shared)
        return edit.before("Transpose", [value], {"perm": perm}, like=value, shape=shape)

    return Operand(facts_of("turned", operand.facts.graph, operand.facts.type, shape), get)


def apart(edit: Edit, value: ir.Value | None, sizes: list[int], kind: ir.DataType, *, turned: bool = False) -> ir.Value:
    """Write nodes that turn [batch, length, heads * size] into [batch, heads, length, size], and return the result.

    Args:
        sizes: batch, length, heads, size.
        turned: the result is [batch, heads, size, length] instead.
    """
    split = edit.before("Reshape", [value, edit.integers(sizes, "shape")], dtype=kind, shape=sizes)
    perm = [0, 2, 3, 1] if turned else [0, 2, 1, 3]
    return edit.before("Transpose", [split], {"perm": perm}, dtype=kind, shape=[sizes[axis] for axis in perm])


def attend(
    edit: Edit,
    operands: tuple[ir.Value, ir.Value, ir.Value],
    scale: float,
    bias: ir.Value | None,
    whole: list[int],
    size: int,
) -> str:
    """Replace the node of ``edit`` by attention in plain nodes: Mul, MatMul, Add, Softmax, MatMul, Transpose, Reshape.

    Args:
        operands: queries [batch, heads, queries, size], keys [batch, heads, size, keys], and values [batch, heads,
            keys, size].
        bias: is added to the scores; ``None`` for none.
        whole: the sizes batch, heads, queries, keys.
        size: number of elements of a head of values.

    Returns:
        always an empty text: no reason against it.
    """
    (query, key, value), old = operands, edit.node.outputs[0]
    kind, (batch, heads, count, _) = query.dtype, whole
    assert kind is not None
    query = edit.before("Mul", [query, edit.constant(np.array(scale, kind.numpy()), "scale")], like=query)
    scores = edit.before("MatMul", [query, key], dtype=kind, shape=whole)
    if bias is not None:
        scores = edit.before("Add", [scores, bias], dtype=kind, shape=whole)
    weights = edit.before("Softmax", [scores], {"axis": 3}, dtype=kind, shape=whole)
    mixed = edit.before("MatMul", [weights, value], dtype=kind, shape=[batch, heads, count, size])
    together = edit.before("Transpose", [mixed], {"perm": [0, 2, 1, 3]}, dtype=kind, shape=[batch, count, heads, size])
    flat = [batch, count, heads * size]
    return edit.become(edit.before("Reshape", [together, edit.integers(flat, "shape")], like=old, shape=flat))
