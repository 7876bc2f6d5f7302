"""Values that a graph computes from constants alone, and that are too large for the simplifier to fold."""

from __future__ import annotations

from functools import lru_cache

from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.graph.analysis.attributes import plain_attributes
from dmlprep.graph.analysis.folding import evaluate
from dmlprep.passes.fusions.reading import held
from dmlprep.portable.arrays import Array

MOST = 1 << 22
"""Elements of each value on the way: the mask of 2048 positions, 32 MiB as integers."""

_NODES = 32
"""Nodes on the way."""


@lru_cache(maxsize=1)  # the layers of a model read one mask
def computed(value: Value) -> Array | None:
    """What a value is; ``None`` where that is not known, not the same on every machine, or of too many elements."""
    return _computed(value, {}, [_NODES])


def _computed(value: Value, known: dict[int, Array], left: list[int]) -> Array | None:
    node = value.producer
    if (array := known.get(id(value))) is not None:
        return array
    if node is None or node.domain or node.subgraphs or len(node.outputs) != 1 or not left[0]:
        return None
    left[0] -= 1
    inputs: list[Array | None] = []
    for index, operand in enumerate(node.inputs):
        array = None if operand is None else _operand(node, index, operand, known, left)
        if operand is not None and array is None:
            return None
        inputs.append(array)
    outputs = evaluate(node.op, node.opset, inputs, plain_attributes(node.ir), 1, lambda elements: elements <= MOST)
    if outputs is None:
        return None
    known[id(value)] = outputs[0]
    return outputs[0]


def _operand(node: NodeFacts, index: int, value: Value, known: dict[int, Array], left: list[int]) -> Array | None:
    if not value.constant:
        return _computed(value, known, left)
    if value.size is None or value.size > MOST:
        return None
    array = held(node, index)
    return value.array() if array is None else array
