"""The memory inside one fused graph: what DirectML keeps of the weights, and the block in which its tensors lie.

Measured on DirectML 1.15.4 with the sizes that its compiled graphs ask for (``docs/memory.md``):

* an operator whose result takes as many bytes as its input writes over it, where nothing else reads that input;
* a constant weight that DequantizeLinear widens is made while the two before it are still held: three of them lie there
  at once (``tests/directml/vram/test_widened_weights.py``);
* reshapes, slices and splits are views, and what is concatenated is written in its place at once;
* inputs and outputs of the graph are the session's; a result that only such steps lead to an output is written there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.graph.analysis.liveness import Buffer

SizeOf = Callable[[Value], int | None]
"""Bytes of a value on the device, ``None`` where they are not known."""

_VIEWS = frozenset(["Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout", "Slice", "Split"])

_AHEAD = 2
"""Widened weights that are still held when the next one is made."""

_IN_PLACE = frozenset(
    # One element of the result needs the elements at its own place only.
    [
        *(
            "Abs",
            "Acos",
            "Acosh",
            "Asin",
            "Asinh",
            "Atan",
            "Atanh",
            "Ceil",
            "Celu",
            "Clip",
            "Cos",
            "Cosh",
            "Elu",
            "Erf",
        ),
        *("Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Not"),
        *("Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign"),
        *("Sqrt", "Tan", "Tanh", "ThresholdedRelu", "PRelu", "BatchNormalization", "IsNaN", "IsInf", "Swish"),
        *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Mean", "Sum", "And", "Or", "Xor"),
        *("com.microsoft::Gelu", "com.microsoft::BiasGelu", "com.microsoft::FastGelu", "com.microsoft::QuickGelu"),
    ]
)


def inner_buffers(nodes: Sequence[NodeFacts], made: Callable[[Value], bool], size: SizeOf) -> list[Buffer]:
    """The tensors inside one fused graph, each with the steps (places in ``nodes``) that it is held at.

    Args:
        nodes: of the fused graph, in the order of execution.
        made: whether a value is an output of the fused graph.
        size: of values whose shapes are static, as those of a fused graph are.
    """
    places = _Places({id(node): index for index, node in enumerate(nodes)}, made, size)
    for node in nodes:
        places.add(node)
    return places.buffers()


def _widens(node: NodeFacts) -> bool:
    """Whether a node makes a weight of what is constant."""
    if node.key not in ("DequantizeLinear", "com.microsoft::DequantizeLinear"):
        return False
    return all(value is None or value.constant for value in node.inputs)


@dataclass
class _Held:
    """One place in memory, and what is known of it.

    Attributes:
        value: the largest that lies in it.
        outside: it is the session's: an input, an output or a weight.
    """

    value: Value
    nbytes: int
    first: int
    last: int
    outside: bool


class _Places:
    def __init__(self, step: dict[int, int], made: Callable[[Value], bool], size: SizeOf) -> None:
        self._step = step
        self._made = made
        self._size = size
        self._of: dict[int, _Held] = {}
        self._widened: list[_Held] = []

    def add(self, node: NodeFacts) -> None:
        at = self._step[id(node)]
        for value in node.inputs:
            if value is not None and id(value) in self._of:
                held = self._of[id(value)]
                held.last = max(held.last, at)
        for value in node.outputs:
            if value is None or (not value.consumers and not self._made(value)):
                continue
            shared = self._shared(node, value) if value is node.output() or node.key == "Split" else None
            nbytes = self._size(value) or 0
            if shared is None:
                self._of[id(value)] = held = _Held(value, nbytes, at, at, self._made(value))
                if _widens(node):
                    if self._widened:
                        held.first = min(at, self._widened[-_AHEAD:][0].last)
                    self._widened.append(held)
                continue
            self._of[id(value)] = shared
            shared.last = max(shared.last, at)
            shared.outside = shared.outside or self._made(value)
            if nbytes > shared.nbytes:
                shared.value, shared.nbytes = value, nbytes
        if node.key == "Concat":
            self._join(node)

    def _shared(self, node: NodeFacts, value: Value) -> _Held | None:
        """The place of an input that the result takes over."""
        if node.key in _VIEWS:
            first = node.input(0)
            found = self._of.get(id(first)) if first is not None else None
            # A view of what stays readable is no place of its own; an output must be written.
            return None if found is not None and found.outside and self._made(value) else found
        if node.key not in _IN_PLACE:
            return None
        for source in node.inputs:
            held = self._of.get(id(source)) if source is not None else None
            if source is None or held is None or held.outside or len(source.consumers) > 1:
                continue
            if self._size(source) == self._size(value) and held.nbytes == self._size(value):
                return held
        return None

    def _join(self, node: NodeFacts) -> None:
        """What is concatenated is written where it goes."""
        value = node.output()
        whole = self._of.get(id(value)) if value is not None else None
        if whole is None:
            return  # nobody reads it
        for source in node.inputs:
            held = self._of.get(id(source)) if source is not None else None
            if source is None or held is None or held.outside or len(source.consumers) > 1 or held.value is not source:
                continue
            whole.first = min(whole.first, held.first)
            held.nbytes = 0

    def buffers(self) -> list[Buffer]:
        """Of all places that are not the session's."""
        unique = {id(held): held for held in self._of.values()}.values()
        return [Buffer(h.value.name, h.nbytes, h.first, h.last) for h in unique if not h.outside and h.nbytes]
