"""Helpers that match nodes in a graph, for several fused forms."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dmlprep.directml.quirks.patterns import readers
from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.portable.arrays import Array


def source(value: Value | None) -> Value | None:
    """Go back from a value over nodes that only forward it (Identity, a Concat of one input), and return the first.

    ``None`` for ``None``, and if the first such node has no input.
    """
    while value is not None and value.producer is not None and _gives_its_input(value.producer):
        value = value.producer.input(0)
    return value


def _gives_its_input(node: NodeFacts) -> bool:
    return node.key == "Identity" or (node.key == "Concat" and len(node.inputs) == 1)


def made_by(value: Value | None, *ops: str) -> NodeFacts | None:
    """The node that computes a value, if its operator is one of ``ops``; otherwise ``None``.

    Nodes that only forward a value are skipped.
    """
    value = source(value)
    node = value.producer if value is not None else None
    return node if node is not None and node.key in ops else None


def reader(value: Value | None, *ops: str) -> NodeFacts | None:
    """The only reader of a value, if its operator is one of ``ops``; otherwise ``None``.

    Nodes that only forward the value are skipped. A graph output counts as a reader, and so does a node in a subgraph.
    """
    while value is not None and not value.graph_output:
        if len(value.consumers) != 1 or value.consumers[0].graph != value.graph:
            return None
        node = value.consumers[0]
        if not _gives_its_input(node):
            return node if node.key in ops else None
        value = node.output()
    return None


def sides(node: NodeFacts) -> Iterator[tuple[int, int]]:
    """Yield the operand indices of a node with two inputs in both orders: (0, 1), (1, 0); nothing for other nodes."""
    if len(node.inputs) == 2:
        yield 0, 1
        yield 1, 0


def axes_of(node: NodeFacts) -> list[int] | None:
    """The axes of a reduction, from its attribute or second input; ``None`` if they are unknown or not given."""
    axes = node.input(1)
    return axes.integers() if axes is not None else node.attribute("axes")


def held(node: NodeFacts, index: int) -> Array | None:
    """The content of the initializer at input ``index``, of any size; ``None`` for inputs without known content."""
    value = node.ir.inputs[index]
    return np.asarray(value.const_value.numpy()) if value is not None and value.const_value is not None else None


def all_are(value: Value | None, number: float, count: int) -> bool:
    """Return whether a value is a small constant of ``count`` elements that are all ``number``."""
    array = value.array() if value is not None else None
    return array is not None and array.size == count and bool(np.all(array == number))


def spread_over(value: Value | None, axis: int, sizes: list[int]) -> bool:
    """Return whether a value has the full size along ``axis`` of a tensor of shape ``sizes``, and size 1 elsewhere.

    Missing axes in front count as size 1.
    """
    if value is None or not value.static or len(value.sizes) > len(sizes):
        return False
    lead = [1] * (len(sizes) - len(value.sizes)) + value.sizes
    return lead == [size if at == axis else 1 for at, size in enumerate(sizes)]


def swish_behind(value: Value | None) -> NodeFacts | None:
    """The last node of ``value * sigmoid(value)`` after a value; ``None`` without it, or if others read the value.

    A QuickGelu with alpha 1 computes the same, so it is returned too.
    """
    if value is None or value.graph_output:
        return None
    users = readers(value)
    if any(n.graph != value.graph for n in users):
        return None
    if len(users) == 1 and users[0].key == "com.microsoft::QuickGelu":
        return users[0] if users[0].attribute("alpha", 1.702) == 1.0 else None
    if sorted(n.key for n in users) != ["Mul", "Sigmoid"]:
        return None
    product, gate = sorted(users, key=lambda n: n.key)
    return product if reader(gate.output(), "Mul") is product else None
