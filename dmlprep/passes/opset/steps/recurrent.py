"""Write LSTM, GRU and RNN nodes of one time step in operators that DirectML can fuse.

A streaming model runs its recurrent layer for one time step at a time. DirectML cannot fuse such a layer with other
nodes, so the layer splits the fused graph in two, and runs on its own between them. One time step is two matrix
products and a few element-wise operators.

Source: the operators' equations in ONNX's specification.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from dmlprep.graph.analysis.knowledge import Knowledge
from dmlprep.passes.opset.build import Builder, CannotLower, attribute, input_of

_ACTIVATIONS: Mapping[str, list[str]] = {
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "RNN": ["Tanh"],
}
_GATES: Mapping[str, int] = {"LSTM": 4, "GRU": 3, "RNN": 1}


def is_one_step(node: ir.Node, known: Knowledge) -> bool:
    """Return whether a node is an LSTM, GRU or RNN of one time step that ``ONE_STEP`` can write.

    It must run forward with the default activations, without clip, layout, peepholes or sequence lengths, and have
    static shapes.
    """
    if node.op_type not in _ACTIVATIONS or node.domain not in ("", "ai.onnx"):
        return False
    others = ("activation_alpha", "activation_beta", "clip", "input_forget", "layout")
    plain = (
        attribute(node, "direction", "forward") == "forward"
        and attribute(node, "activations", _ACTIVATIONS[node.op_type]) == _ACTIVATIONS[node.op_type]
        and not any(attribute(node, name) for name in others)
    )
    lengths_or_peepholes = input_of(node, 4) is not None or input_of(node, 7) is not None
    return plain and not lengths_or_peepholes and _sizes(node, known) is not None


def _sizes(node: ir.Node, known: Knowledge) -> tuple[int, int, int] | None:
    """Return the sizes of the batch, of the input and of the hidden state.

    ``None`` if they are unknown or contradict each other, or if there is more than one time step or direction.
    """
    x, w, r = (known.static_shape(input_of(node, i)) for i in range(3))
    if x is None or w is None or r is None or not len(x) == len(w) == len(r) == 3:
        return None
    width, hidden = _GATES[node.op_type] * r[2], r[2]
    fits = (x[0], *w, *r) == (1, 1, width, x[2], 1, width, hidden)
    return (x[1], x[2], hidden) if fits else None


class _Step:
    """Common parts of LSTM, GRU and RNN: operands reshaped to two dimensions, and products for all gates together.

    Raises:
        CannotLower: the node is not of the form that ``is_one_step`` accepts.
    """

    def __init__(self, b: Builder) -> None:
        sizes = _sizes(b.node, b.values)
        if sizes is None or not is_one_step(b.node, b.values):
            raise CannotLower("it has more than one time step, or options that the one-step form lacks")
        self.b = b
        self.batch, elements, self.hidden = sizes
        self.width = _GATES[b.node.op_type] * self.hidden
        self.x = b.op("Reshape", b.need(0), b.ints(self.batch, elements))
        self.weights = b.op("Reshape", b.need(1), b.ints(self.width, elements))
        self.recurrence = b.op("Reshape", b.need(2), b.ints(self.width, self.hidden))
        self.h = self.state(5)

    def state(self, index: int) -> ir.Value:
        """The initial state from the input at ``index``, [batch, hidden]; zeros if that input is omitted."""
        before = self.b.input(index)
        if before is None:
            return self.b.op("Expand", self.b.like(0, self.x), self.b.ints(self.batch, self.hidden))
        return self.b.op("Reshape", before, self.b.ints(self.batch, self.hidden))

    def bias(self, begin: int, end: int) -> ir.Value | None:
        """Elements ``begin`` to ``end`` of the bias; ``None`` if the node has no bias.

        The bias for the input (``width`` elements) comes before the bias for the state.
        """
        bias = self.b.input(3)
        return None if bias is None else self.part(self.b.op("Reshape", bias, self.b.ints(-1)), begin, end, 0)

    def part(self, value: ir.Value, begin: int, end: int, axis: int = 1) -> ir.Value:
        """Slice elements ``begin`` to ``end`` along one axis."""
        b = self.b
        return b.op("Slice", value, b.ints(begin), b.ints(end), b.ints(axis))

    def gate(self, value: ir.Value, index: int) -> ir.Value:
        """Slice the columns of the gate ``index`` from a product for all gates."""
        return self.part(value, index * self.hidden, (index + 1) * self.hidden)

    def products(self) -> tuple[ir.Value, ir.Value]:
        """Write the products for all gates, with their biases: input times weights, and state times recurrence."""
        ours = self.b.op("Gemm", self.x, self.weights, self.bias(0, self.width), transB=1)
        return ours, self.b.op("Gemm", self.h, self.recurrence, self.bias(self.width, 2 * self.width), transB=1)

    def outputs(self, h: ir.Value, c: ir.Value | None = None) -> list[ir.Value | None]:
        """Reshape the new states ``h`` and ``c`` to the outputs Y, Y_h and Y_c; ``None`` for an unused output."""
        state = (1, self.batch, self.hidden)
        results = ((h, (1, *state)), (h, state), (c, state))[: len(self.b.node.outputs)]
        return [
            self.b.op("Reshape", v, self.b.ints(*shape)) if v is not None and self.b.asked(i) else None
            for i, (v, shape) in enumerate(results)
        ]


def lstm(b: Builder) -> list[ir.Value | None]:
    """Write one time step of an LSTM; its gates are in the order input, output, forget, cell."""
    step = _Step(b)
    both = b.op("Add", *step.products())
    i, o, f = (b.op("Sigmoid", step.gate(both, index)) for index in range(3))
    new = b.op("Mul", i, b.op("Tanh", step.gate(both, 3)))
    c = b.op("Add", b.op("Mul", f, step.state(6)), new)
    return step.outputs(b.op("Mul", o, b.op("Tanh", c)), c)


def gru(b: Builder) -> list[ir.Value | None]:
    """Write one time step of a GRU; its gates are in the order update, reset, hidden.

    The reset gate is applied after the state's product if linear_before_reset is set, otherwise before.
    """
    step = _Step(b)
    ours, theirs = step.products()
    z, r = (b.op("Sigmoid", b.op("Add", step.gate(ours, i), step.gate(theirs, i))) for i in range(2))
    if b.attr("linear_before_reset", 0):
        state = b.op("Mul", r, step.gate(theirs, 2))
    else:
        weights = step.part(step.recurrence, 2 * step.hidden, step.width, 0)
        bias = step.bias(step.width + 2 * step.hidden, 2 * step.width)
        state = b.op("Gemm", b.op("Mul", r, step.h), weights, bias, transB=1)
    new = b.op("Tanh", b.op("Add", step.gate(ours, 2), state))
    before = b.op("Mul", z, step.h)
    return step.outputs(b.op("Add", b.op("Mul", b.op("Sub", b.like(1, step.x), z), new), before))


def rnn(b: Builder) -> list[ir.Value | None]:
    """Write one time step of an RNN: tanh of both products' sum."""
    step = _Step(b)
    return step.outputs(b.op("Tanh", b.op("Add", *step.products())))


ONE_STEP: Mapping[str, Callable[[Builder], list[ir.Value | None]]] = {"GRU": gru, "LSTM": lstm, "RNN": rnn}
"""Map from an operator of ai.onnx to the function that writes one time step of it, and returns its outputs."""
