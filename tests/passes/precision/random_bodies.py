"""Steps of random graphs that hold graphs of their own: branches, loops, scans, functions; sequences and optionals.

What they have in common is that types cross a border: captured values, carried states, weights that two sides share.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.passes.precision.random_graphs import ROUND, TINY, Graph, largest, same

FLOAT = TensorProto.FLOAT


def _info(name: str, shape: tuple[int, ...], kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _branch(draw: Any, g: Graph, x: str, name: str) -> Any:
    """A branch that gives half of ``x``, by a captured weight, one of its own or one of both, maybe by FP32."""
    shape, out = g.floats[x], f"{name}_o"
    kind = draw(st.sampled_from(["captured", "own", "running sum", "identity"]))
    if kind == "identity":
        return helper.make_graph([helper.make_node("Identity", [x], [out])], name, [], [_info(out, shape)])
    if kind == "running sum":  # CumSum stays in FP32; over an axis of one element it changes nothing
        steps = [
            helper.make_node("Unsqueeze", [x, g.weight(np.array([0]))], [f"{name}_u"]),
            helper.make_node("CumSum", [f"{name}_u", g.weight(np.array(0))], [f"{name}_c"]),
            helper.make_node("Squeeze", [f"{name}_c", g.weight(np.array([0]))], [out]),
        ]
        return helper.make_graph(steps, name, [], [_info(out, shape)])
    own = [numpy_helper.from_array(np.array(0.5, np.float32), f"{name}_w")] if kind == "own" else []
    half = f"{name}_w" if own else g.weight(np.float32(0.5))
    return helper.make_graph([helper.make_node("Mul", [x, half], [out])], name, [], [_info(out, shape)], own)


def branches(draw: Any, g: Graph, x: str) -> None:
    """An If whose branches capture what is around them."""
    name = g.name()
    then, other = (_branch(draw, g, x, f"{name}_{i}") for i in range(2))
    g.add("If", ["flag"], g.floats[x], same(x), then_branch=then, else_branch=other)


def nested(draw: Any, g: Graph, x: str) -> None:
    """A Loop around an If around a captured value: s -> s / 2 + x, or s -> tanh(s)."""
    shape, i = g.floats[x], g.name()
    c = g.weight(np.float32(0.5))
    then = helper.make_graph(
        [helper.make_node("Mul", [f"{i}_s", c], [f"{i}_h"]), helper.make_node("Add", [f"{i}_h", x], [f"{i}_t"])],
        "then",
        [],
        [_info(f"{i}_t", shape)],
    )
    other = helper.make_graph([helper.make_node("Tanh", [f"{i}_s"], [f"{i}_e"])], "else", [], [_info(f"{i}_e", shape)])
    body = helper.make_graph(
        [
            helper.make_node("Identity", [f"{i}_c"], [f"{i}_d"]),
            helper.make_node("If", ["flag"], [f"{i}_r"], then_branch=then, else_branch=other),
        ],
        "body",
        [_info(f"{i}_i", (), TensorProto.INT64), _info(f"{i}_c", (), TensorProto.BOOL), _info(f"{i}_s", shape)],
        [_info(f"{i}_d", (), TensorProto.BOOL), _info(f"{i}_r", shape)],
    )
    trips, go = g.weight(np.array(3)), g.weight(np.array(True))
    g.add("Loop", [trips, go, x], shape, lambda v, e: 2 * e[x] + 12 * ROUND * largest(v[x]) + 6 * TINY, body=body)


def counted(draw: Any, g: Graph, x: str) -> None:
    """A Loop with an integer state, a floating one, and a scan output: s -> s / 2 + k."""
    shape, i = g.floats[x], g.name()
    half, one = g.weight(np.float32(0.5)), g.weight(np.array(1))
    body = helper.make_graph(
        [
            helper.make_node("Identity", [f"{i}_c"], [f"{i}_d"]),
            helper.make_node("Cast", [f"{i}_k"], [f"{i}_f"], to=FLOAT),
            helper.make_node("Mul", [f"{i}_s", half], [f"{i}_h"]),
            helper.make_node("Add", [f"{i}_h", f"{i}_f"], [f"{i}_r"]),
            helper.make_node("Add", [f"{i}_k", one], [f"{i}_l"]),
            helper.make_node("Neg", [f"{i}_r"], [f"{i}_n"]),
        ],
        "body",
        [
            _info(f"{i}_i", (), TensorProto.INT64),
            _info(f"{i}_c", (), TensorProto.BOOL),
            _info(f"{i}_s", shape),
            _info(f"{i}_k", (), TensorProto.INT64),
        ],
        [
            _info(f"{i}_d", (), TensorProto.BOOL),
            _info(f"{i}_r", shape),
            _info(f"{i}_l", (), TensorProto.INT64),
            _info(f"{i}_n", shape),
        ],
    )
    last, all_of_them, count = g.name(), g.name(), g.name()
    inputs = [g.weight(np.array(3)), g.weight(np.array(True)), x, one]
    g.nodes.append(helper.make_node("Loop", inputs, [last, count, all_of_them], name=f"n_{last}", body=body))
    for out, sizes in ((last, shape), (all_of_them, (3, *shape))):
        g.floats[out] = sizes
        g.bounds[out] = lambda v, e: e[x] + 8 * ROUND * (largest(v[x]) + 6) + 6 * TINY


def scanned(draw: Any, g: Graph, x: str) -> None:
    """A Scan with a state and a captured weight: t -> t / 2 + row, rows of tanh(t)."""
    shape, i = g.floats[x], g.name()
    if len(shape) < 2:
        return
    row, half = shape[1:], g.weight(np.float32(0.5))
    start = g.weight(np.zeros(row, np.float32))
    body = helper.make_graph(
        [
            helper.make_node("Mul", [f"{i}_s", half], [f"{i}_h"]),
            helper.make_node("Add", [f"{i}_h", f"{i}_v"], [f"{i}_t"]),
            helper.make_node("Tanh", [f"{i}_t"], [f"{i}_u"]),
        ],
        "body",
        [_info(f"{i}_s", row), _info(f"{i}_v", row)],
        [_info(f"{i}_t", row), _info(f"{i}_u", row)],
    )
    last, rows = g.name(), g.name()
    g.nodes.append(helper.make_node("Scan", [start, x], [last, rows], name=f"n_{last}", body=body, num_scan_inputs=1))
    for out, sizes in ((last, row), (rows, shape)):
        g.floats[out] = sizes
        g.bounds[out] = lambda v, e: 2 * e[x] + 16 * ROUND * largest(v[x]) + 8 * TINY


def sequences(draw: Any, g: Graph, x: str) -> None:
    """Values through a sequence or an optional, and back."""
    shape, s = g.floats[x], g.name()
    kind = draw(st.sampled_from(["at", "split", "grown", "optional"]))
    if kind == "at":
        g.nodes.append(helper.make_node("SequenceConstruct", [x, x], [s], name=f"n_{s}"))
        g.add("SequenceAt", [s, g.weight(np.array(1))], shape, same(x))
    elif kind == "split":
        g.nodes.append(helper.make_node("SplitToSequence", [x], [s], name=f"n_{s}", axis=0))
        g.add("ConcatFromSequence", [s], shape, same(x), axis=0)
    elif kind == "grown" and np.prod(shape) < 500:
        body = helper.make_graph(
            [
                helper.make_node("Identity", [f"{s}_c"], [f"{s}_d"]),
                helper.make_node("Neg", [x], [f"{s}_n"]),
                helper.make_node("SequenceInsert", [f"{s}_s", f"{s}_n"], [f"{s}_r"]),
            ],
            "body",
            [
                _info(f"{s}_i", (), TensorProto.INT64),
                _info(f"{s}_c", (), TensorProto.BOOL),
                helper.make_tensor_sequence_value_info(f"{s}_s", FLOAT, shape),
            ],
            [
                _info(f"{s}_d", (), TensorProto.BOOL),
                helper.make_tensor_sequence_value_info(f"{s}_r", FLOAT, shape),
            ],
        )
        empty = g.name()
        g.nodes.append(helper.make_node("SequenceEmpty", [], [empty], name=f"n_{empty}", dtype=FLOAT))
        inputs = [g.weight(np.array(2)), g.weight(np.array(True)), empty]
        g.nodes.append(helper.make_node("Loop", inputs, [s], name=f"n_{s}", body=body))
        g.add("ConcatFromSequence", [s], (2 * shape[0], *shape[1:]), same(x), axis=0)
    elif kind == "optional" and g.opset >= 18:
        # of the input: ONNX Runtime 1.24.4 does not load an Optional of what it can fold
        g.nodes.append(helper.make_node("Optional", ["x"], [s], name=f"n_{s}"))
        g.add("OptionalGetElement", [s], g.floats["x"], same("x"))


def shared_weight(draw: Any, g: Graph, x: str) -> None:
    """A weight that a Mul takes in FP16, and a running sum in FP32."""
    shape = g.floats[x]
    array = np.random.default_rng(draw(st.integers(0, 99))).standard_normal(shape).astype(np.float32)
    w = g.weight(array)
    top, total = largest(array), largest(np.cumsum(array, -1))
    product = g.add("Mul", [x, w], shape, lambda v, e: top * (e[x] * (1 + ROUND) + ROUND * largest(v[x])) + TINY)
    running = g.add("CumSum", [w, g.weight(np.array(len(shape) - 1))], shape, lambda v, e: ROUND * total)
    g.add("Add", [product, running], shape, lambda v, e: e[product] + e[running])


def replaceable(draw: Any, g: Graph, x: str) -> None:
    """A weight that callers may replace: it keeps its type."""
    c = g.weight(np.float32(draw(st.sampled_from([0.5, 0.1, -1.0]))))
    g.defaults.append(c)
    g.add("Mul", [x, c], g.floats[x], lambda v, e: e[x] + ROUND * largest(v[x]))


def called(draw: Any, g: Graph, x: str) -> None:
    """A model-local function that calls another, and hands an attribute on."""
    if not g.functions:
        opsets = [helper.make_opsetid("", g.opset), helper.make_opsetid("my", 1)]
        inner = helper.make_node("LeakyRelu", ["p"], ["q"])
        inner.attribute.add(name="alpha", ref_attr_name="slope", type=1)
        call = helper.make_node("Leak", ["h"], ["o"], domain="my")
        call.attribute.add(name="slope", ref_attr_name="slope", type=1)
        halve = [
            helper.make_node("Constant", [], ["k"], value_float=0.5),
            helper.make_node("Mul", ["p", "k"], ["h"]),
            call,
        ]
        g.functions.append(helper.make_function("my", "Leak", ["p"], ["q"], [inner], opsets, ["slope"]))
        g.functions.append(helper.make_function("my", "Halve", ["p"], ["o"], halve, opsets, ["slope"]))
    slope = draw(st.sampled_from([0.0, 0.25, 1.0]))
    bound = lambda v, e: e[x] + ROUND * largest(v[x]) + 2 * TINY  # noqa: E731
    g.add("Halve", [x], g.floats[x], bound, domain="my", slope=slope)


STEPS = [branches, nested, counted, scanned, sequences, shared_weight, replaceable, called]
"""All of them."""
