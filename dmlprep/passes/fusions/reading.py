"""What the matchers of several fused forms look for in a graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dmlprep.directml.quirks.patterns import readers
from dmlprep.directml.targets.facts import NodeFacts, Value


def source(value: Value | None) -> Value | None:
    """The value behind nodes that give what they are given: Identity, a Concat of one."""
    while value is not None and value.producer is not None:
        node = value.producer
        same = node.key == "Identity" or (node.key == "Concat" and len(node.inputs) == 1)
        if not same:
            break
        value = node.input(0)
    return value


def made_by(value: Value | None, *ops: str) -> NodeFacts | None:
    """The node that makes a value, where it is of one of these operators."""
    found = source(value)
    node = found.producer if found is not None else None
    return node if node is not None and node.key in ops else None


def reader(value: Value | None, *ops: str) -> NodeFacts | None:
    """The node that alone reads a value, where it is of one of these operators; a graph output is read elsewhere."""
    while value is not None and not value.graph_output:
        found = list(value.consumers)
        if len(found) != 1 or found[0].graph != value.graph:
            return None
        if found[0].key == "Identity" or (found[0].key == "Concat" and len(found[0].inputs) == 1):
            value = found[0].output()
            continue
        return found[0] if found[0].key in ops else None
    return None


def sides(node: NodeFacts) -> Iterator[tuple[int, int]]:
    """The places of the operands of a node of two, in either order."""
    if len(node.inputs) == 2:
        yield 0, 1
        yield 1, 0


def all_are(value: Value | None, number: float, count: int) -> bool:
    """Whether a value is a small constant of ``count`` elements that are all ``number``."""
    array = value.array() if value is not None else None
    return array is not None and array.size == count and bool(np.all(array == number))


def spread_over(value: Value | None, axis: int, sizes: list[int]) -> bool:
    """Whether a value, broadcast to ``sizes``, differs along ``axis`` only, and has every element of it."""
    if value is None or not value.static or len(value.sizes) > len(sizes):
        return False
    lead = [1] * (len(sizes) - len(value.sizes)) + value.sizes
    return lead == [size if at == axis else 1 for at, size in enumerate(sizes)]


def swish_behind(value: Value | None) -> NodeFacts | None:
    """The node that gives ``value * sigmoid(value)``, where nothing else reads the value."""
    if value is None or value.graph_output:
        return None
    found = readers(value)
    if any(n.graph != value.graph for n in found):
        return None
    if len(found) == 1 and found[0].key == "com.microsoft::QuickGelu":
        return found[0] if found[0].attribute("alpha", 1.702) == 1.0 else None
    gates = [n for n in found if n.key == "Sigmoid"]
    products = [n for n in found if n.key == "Mul"]
    if len(found) != 2 or len(gates) != 1 or len(products) != 1:
        return None
    gated = gates[0].output()
    product = reader(gated, "Mul")
    return product if product is products[0] else None
