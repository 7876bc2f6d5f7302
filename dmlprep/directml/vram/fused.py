"""The memory inside one fused graph: DirectML's copies of the weights, and the block of its tensors.

Measured on DirectML 1.15.4, from the sizes that its compiled graphs request (``docs/memory.md``):

* An operator with as many bytes in its result as in its input overwrites that input, if the input has no other reader.
* When DequantizeLinear widens a constant weight, the two weights before it are still in memory: three at a time
  (``tests/directml/vram/test_widened_weights.py``).
* Reshapes, slices and splits are views. The inputs of a Concat are written directly into its result.
* Inputs and outputs of the fused graph belong to the session, not to the block. A result that becomes an output
  through these steps alone is written directly into the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.graph.analysis.liveness import Buffer

SizeOf = Callable[[Value], int | None]
"""A function that returns the size of a value on the device in bytes; ``None`` if it is unknown."""

_VIEWS = frozenset(["Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout", "Slice", "Split"])

_AHEAD = 2
"""Number of dequantized weights that are still in memory when the next one is computed."""

_IN_PLACE = frozenset(
    # An element of the result needs only the elements at its own position.
    [
        *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu"),
        *("Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Not"),
        *("Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign"),
        *("Sqrt", "Tan", "Tanh", "ThresholdedRelu", "PRelu", "BatchNormalization", "IsNaN", "IsInf", "Swish"),
        *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Mean", "Sum", "And", "Or", "Xor"),
        *("com.microsoft::Gelu", "com.microsoft::BiasGelu", "com.microsoft::FastGelu", "com.microsoft::QuickGelu"),
    ]
)


def inner_buffers(nodes: Sequence[NodeFacts], is_output: Callable[[Value], bool], size: SizeOf) -> list[Buffer]:
    """The tensors inside one fused graph, each with its size and the steps during which it is in memory.

    A step is an index in ``nodes``. Inputs and outputs of the fused graph are left out.

    Args:
        nodes: nodes of the fused graph, in the order of execution.
        is_output: returns whether a value is an output of the fused graph.
    """
    places = _Places(is_output, size)
    for step, node in enumerate(nodes):
        places.add(node, step)
    return places.buffers()


def _widens(node: NodeFacts) -> bool:
    """Return whether a node is a DequantizeLinear that computes a weight from constants."""
    if node.key not in ("DequantizeLinear", "com.microsoft::DequantizeLinear"):
        return False
    return all(value is None or value.constant for value in node.inputs)


@dataclass
class _Held:
    """One place in memory: its largest value, the steps of its use, and whether it is an output of the fused graph."""

    value: Value
    nbytes: int
    first: int
    last: int
    outside: bool


class _Places:
    def __init__(self, is_output: Callable[[Value], bool], size: SizeOf) -> None:
        self._is_output = is_output
        self._size = size
        self._of: dict[int, _Held] = {}
        self._widened: list[_Held] = []

    def add(self, node: NodeFacts, at: int) -> None:
        for value in node.inputs:
            if id(value) in self._of:
                self._of[id(value)].last = at
        for value in node.outputs:
            if value is None or (not value.consumers and not self._is_output(value)):
                continue
            shared = self._shared(node, value) if value is node.output() or node.key == "Split" else None
            nbytes = self._size(value) or 0
            if shared is None:
                self._of[id(value)] = held = _Held(value, nbytes, at, at, self._is_output(value))
                if _widens(node):
                    if self._widened:
                        held.first = min(at, self._widened[-_AHEAD:][0].last)
                    self._widened.append(held)
                continue
            self._of[id(value)] = shared
            shared.last = at
            shared.outside = shared.outside or self._is_output(value)
            if nbytes > shared.nbytes:
                shared.value, shared.nbytes = value, nbytes
        if node.key == "Concat":
            self._join(node)

    def _shared(self, node: NodeFacts, value: Value) -> _Held | None:
        """The place of an input that the node's result reuses; ``None`` if the result needs a new place."""
        if node.key in _VIEWS:
            place = self._of.get(id(node.input(0)))
            # A view of a value that stays readable has no place of its own; an output must be written.
            return None if place is not None and place.outside and self._is_output(value) else place
        for source, held in self._free(node) if node.key in _IN_PLACE else ():
            if self._size(source) == self._size(value) == held.nbytes:
                return held
        return None

    def _free(self, node: NodeFacts) -> Iterator[tuple[Value, _Held]]:
        """The inputs that no other node reads, with their places, except places that are outputs of the fused graph."""
        for source in node.inputs:
            held = self._of.get(id(source))
            if source is not None and held is not None and not held.outside and len(source.consumers) <= 1:
                yield source, held

    def _join(self, node: NodeFacts) -> None:
        """Let the inputs of a Concat that no other node reads share the place of its result.

        DirectML writes them directly into it.
        """
        whole = self._of.get(id(node.output()))
        for source, held in self._free(node) if whole is not None else ():
            if whole is not None and held.value is source:
                whole.first = min(whole.first, held.first)
                held.nbytes = 0

    def buffers(self) -> list[Buffer]:
        """The places that are not outputs of the fused graph, as buffers."""
        unique = {id(held): held for held in self._of.values()}.values()
        return [Buffer(h.value.name, h.nbytes, h.first, h.last) for h in unique if not h.outside and h.nbytes]
