"""Random valid graphs, and how far FP16 may take each of their values from FP32.

The bound is worked out operator by operator from the values of an FP32 run: what an operand's error becomes, plus one
rounding of the result. It is a bound, not an estimate: a converter that breaks it broke something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

ROUND = 2.0**-11
TINY = 2.0**-24

Bound = Callable[[dict[str, Any], dict[str, float]], float]


@dataclass
class Graph:
    """A graph under construction; ``bounds`` follow the order of the values; ``defaults`` are weights and inputs."""

    opset: int
    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, Any] = field(default_factory=dict)
    floats: dict[str, tuple[int, ...]] = field(default_factory=dict)
    bounds: dict[str, Bound] = field(default_factory=dict)
    functions: list[Any] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)
    count: int = 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def weight(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], bound: Bound, **attributes: Any) -> str:
        out = self.name()
        self.nodes.append(helper.make_node(op, inputs, [out], name=f"n_{out}", **attributes))
        self.floats[out] = shape
        self.bounds[out] = bound
        return out


def largest(value: Any) -> float:
    """Largest absolute value."""
    return float(np.abs(value).max(initial=0))


def same(name: str) -> Bound:
    """The error of ``name``, and no more."""
    return lambda v, e: e[name]


def _lipschitz(name: str, factor: float) -> Bound:
    return lambda v, e: factor * e[name]


def _unary(draw: Any, g: Graph, x: str) -> None:
    op, factor = draw(
        st.sampled_from(
            [
                ("Relu", 1),
                ("Neg", 1),
                ("Abs", 1),
                ("Tanh", 1),
                ("Sigmoid", 0.25),
                ("Erf", 1.13),
                ("Identity", 1),
                ("Softplus", 1),
            ]
        )
    )
    g.add(op, [x], g.floats[x], _lipschitz(x, factor))


def _binary(draw: Any, g: Graph, x: str) -> None:
    others = [n for n, s in g.floats.items() if s == g.floats[x]]
    y = draw(st.sampled_from(others))
    op = draw(st.sampled_from(["Add", "Sub", "Mul", "Max", "Min"]))
    if op == "Mul":
        y2 = g.add("Tanh", [y], g.floats[y], same(y))
        g.add(op, [x, y2], g.floats[x], lambda v, e: largest(v[x]) * e[y2] + largest(v[y2]) * e[x] + e[x] * e[y2])
    else:
        g.add(op, [x, y], g.floats[x], lambda v, e: e[x] + e[y])


def _constant(draw: Any, g: Graph, x: str) -> None:
    number = np.float32(draw(st.sampled_from([0.5, 3.0, 0.1, 1e-3, -2.0, 1e-7, 1e-12, 100.0])))
    op = draw(st.sampled_from(["Add", "Mul"]))
    kind = draw(st.sampled_from(["initializer", "node", "float"]))
    if kind == "initializer":
        c = g.weight(number)
    elif kind == "node":
        c = g.name()
        g.nodes.append(helper.make_node("Constant", [], [c], value=numpy_helper.from_array(np.asarray(number))))
    else:
        c = g.name()
        g.nodes.append(helper.make_node("Constant", [], [c], value_float=float(number)))
    off = max(abs(float(number)) * ROUND, TINY)
    if op == "Add":
        g.add(op, [x, c], g.floats[x], lambda v, e: e[x] + off)
    else:
        size = abs(float(number))
        g.add(op, [x, c], g.floats[x], lambda v, e: (size + off) * e[x] + off * largest(v[x]))


def _matmul(draw: Any, g: Graph, x: str) -> None:
    shape = g.floats[x]
    if len(shape) < 2:
        return
    fitting = [n for n, w in g.weights.items() if w.ndim == 2 and w.shape[0] == shape[-1]]
    if fitting and draw(st.booleans()):
        w = draw(st.sampled_from(fitting))
    else:
        seed = draw(st.integers(0, 99))
        rng = np.random.default_rng(seed)
        w = g.weight((rng.standard_normal((shape[-1], draw(st.sampled_from([4, 8])))) / 3).astype(np.float32))
    weight = g.weights[w]
    columns = float(np.abs(weight).sum(0).max())

    def bound(v: dict[str, Any], e: dict[str, float]) -> float:
        return columns * (e[x] * (1 + ROUND) + largest(v[x]) * ROUND + TINY)

    g.add("MatMul", [x, w], (*shape[:-1], weight.shape[1]), bound)


def _move(draw: Any, g: Graph, x: str) -> None:
    shape = g.floats[x]
    kind = draw(st.sampled_from(["reshape", "transpose", "unsqueeze", "concat", "slice", "split", "expand", "gather"]))
    if kind == "reshape":
        size = int(np.prod(shape))
        last = draw(st.sampled_from([d for d in (1, 2, 4, 8) if size % d == 0]))
        new = (size // last, last)
        g.add("Reshape", [x, g.weight(np.array(new, np.int64))], new, same(x))
    elif kind == "transpose":
        order = draw(st.permutations(range(len(shape))))
        g.add("Transpose", [x], tuple(shape[i] for i in order), same(x), perm=list(order))
    elif kind == "unsqueeze" and len(shape) < 4:
        g.add("Unsqueeze", [x, g.weight(np.array([0]))], (1, *shape), same(x))
    elif kind == "concat":
        axis = draw(st.integers(0, len(shape) - 1))
        new = tuple(d * 2 if i == axis else d for i, d in enumerate(shape))
        if np.prod(new) < 2000:
            g.add("Concat", [x, x], new, same(x), axis=axis)
    elif kind == "slice":
        ends = [g.weight(np.array([i], np.int64)) for i in (0, 1, 0)]
        g.add("Slice", [x, *ends], (1, *shape[1:]), same(x))
    elif kind == "split" and shape[-1] % 2 == 0:
        one, two = g.name(), g.name()
        half = (*shape[:-1], shape[-1] // 2)
        more = {"num_outputs": 2} if g.opset >= 18 else {}
        g.nodes.append(helper.make_node("Split", [x], [one, two], name=f"n_{one}", axis=len(shape) - 1, **more))
        for out in (one, two):
            g.floats[out], g.bounds[out] = half, same(x)
    elif kind == "expand" and np.prod(shape) < 500:
        g.add("Expand", [x, g.weight(np.array([2, *[1] * len(shape)]))], (2, *shape), same(x))
    elif kind == "gather":
        g.add("Gather", [x, g.weight(np.array([0, 0]))], (2, *shape[1:]), same(x), axis=0)


def _reduce(draw: Any, g: Graph, x: str) -> None:
    shape = g.floats[x]
    op = draw(st.sampled_from(["ReduceMean", "ReduceSum", "ReduceMax", "Softmax", "CumSum"]))
    if op == "Softmax":
        g.add(op, [x], shape, lambda v, e: 2 * e[x], axis=-1)
    elif op == "CumSum":
        size = shape[-1]
        g.add(op, [x, g.weight(np.array(len(shape) - 1))], shape, lambda v, e: size * e[x])
    else:
        factor = shape[-1] if op == "ReduceSum" else 1
        new = (*shape[:-1], 1)
        if op == "ReduceSum" or g.opset >= 18:
            g.add(op, [x, g.weight(np.array([-1]))], new, _lipschitz(x, factor), keepdims=1)
        else:
            g.add(op, [x], new, _lipschitz(x, factor), keepdims=1, axes=[-1])


def _casts(draw: Any, g: Graph, x: str) -> None:
    kind = draw(st.sampled_from(["double", "half", "mask", "position", "where", "zeros"]))
    shape = g.floats[x]
    if kind in ("double", "half"):
        middle = g.name()
        to = TensorProto.DOUBLE if kind == "double" else TensorProto.FLOAT16
        g.nodes.append(helper.make_node("Cast", [x], [middle], name=f"n_{middle}", to=to))
        g.add("Cast", [middle], shape, lambda v, e: e[x] + ROUND * largest(v[x]) + TINY, to=TensorProto.FLOAT)
    elif kind == "mask":
        size, number = g.name(), g.name()
        g.nodes.append(helper.make_node("Size", [x], [size]))
        g.nodes.append(helper.make_node("Cast", [size], [number], name=f"n_{number}", to=TensorProto.FLOAT))
        count = float(np.prod(shape))
        g.add("Div", [x, number], shape, lambda v, e: e[x] / count + largest(v[x]) / count * ROUND * 2)
    elif kind == "position":
        a, b, c = g.name(), g.name(), g.name()
        g.nodes.append(helper.make_node("Shape", [x], [a]))
        g.nodes.append(helper.make_node("Cast", [a], [b], name=f"n_{b}", to=TensorProto.FLOAT))
        g.nodes.append(helper.make_node("Cast", [b], [c], name=f"n_{c}", to=TensorProto.INT64))
        g.add("Reshape", [x, c], shape, same(x))
    elif kind == "where":
        g.add("Where", ["flag", x, g.add("Neg", [x], shape, same(x))], shape, same(x))
    else:
        a = g.name()
        g.nodes.append(helper.make_node("Shape", [x], [a]))
        b = g.add("ConstantOfShape", [a], shape, lambda v, e: 0.0)
        g.add("Add", [x, b], shape, same(x))


def _control(draw: Any, g: Graph, x: str) -> None:
    shape = g.floats[x]
    if draw(st.booleans()):
        c = g.weight(np.float32(0.5))
        inner = g.name()
        then = helper.make_graph(
            [helper.make_node("Mul", [x, c], [f"{inner}_t"])],
            "then",
            [],
            [helper.make_tensor_value_info(f"{inner}_t", 1, shape)],
        )
        other = helper.make_graph(
            [helper.make_node("Neg", [x], [f"{inner}_m"]), helper.make_node("Tanh", [f"{inner}_m"], [f"{inner}_e"])],
            "else",
            [],
            [helper.make_tensor_value_info(f"{inner}_e", 1, shape)],
        )
        g.add("If", ["flag"], shape, same(x), then_branch=then, else_branch=other)
        return
    inner = g.name()
    c = g.weight(np.float32(0.5))
    body = helper.make_graph(
        [
            helper.make_node("Identity", [f"{inner}_c"], [f"{inner}_d"]),
            helper.make_node("Mul", [f"{inner}_s", c], [f"{inner}_h"]),
            helper.make_node("Add", [f"{inner}_h", x], [f"{inner}_t"]),
        ],
        "body",
        [
            helper.make_tensor_value_info(f"{inner}_i", TensorProto.INT64, []),
            helper.make_tensor_value_info(f"{inner}_c", TensorProto.BOOL, []),
            helper.make_tensor_value_info(f"{inner}_s", 1, shape),
        ],
        [
            helper.make_tensor_value_info(f"{inner}_d", TensorProto.BOOL, []),
            helper.make_tensor_value_info(f"{inner}_t", 1, shape),
        ],
    )
    trips, go = g.weight(np.array(3)), g.weight(np.array(True))
    # s -> s / 2 + x, three times: each step halves the error, adds x's own and two roundings of at most 2 |x|
    g.add("Loop", [trips, go, x], shape, lambda v, e: 2 * e[x] + 6 * ROUND * 2 * largest(v[x]) + 6 * TINY, body=body)


_STEPS = [_unary, _binary, _constant, _matmul, _move, _move, _reduce, _casts, _control]


@st.composite
def graphs(draw: Any, more: Sequence[Any] = ()) -> tuple[onnx.ModelProto, Graph]:
    """A valid model of 3 to 14 random steps, those of ``more`` among them, over ``x`` (floats) and ``flag``."""
    g = Graph(draw(st.sampled_from([13, 17, 18, 21])))
    shape = draw(st.sampled_from([(2, 4), (2, 3, 4), (4, 8), (1, 2, 2, 4)]))
    g.floats["x"] = shape
    g.bounds["x"] = lambda v, e: 0.0
    for _ in range(draw(st.integers(3, 14))):
        x = draw(st.sampled_from(list(g.floats)[-4:]))
        draw(st.sampled_from([*_STEPS, *more]))(draw, g, x)
    made = list(g.floats)[1:] or [g.add("Identity", ["x"], shape, same("x"))]
    last = made[-1]
    more = [n for n in draw(st.lists(st.sampled_from(made), max_size=2, unique=True)) if n != last]
    outputs = [last, *more]
    proto = helper.make_model(
        helper.make_graph(
            g.nodes,
            "random",
            [
                helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
                helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
                *(helper.make_tensor_value_info(n, TensorProto.FLOAT, g.weights[n].shape) for n in g.defaults),
            ],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, g.floats[n]) for n in outputs],
            [numpy_helper.from_array(np.asarray(w), n) for n, w in g.weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", g.opset), helper.make_opsetid("my", 1)],
        functions=g.functions,
        ir_version=9,
    )
    return proto, g


def implied_bounds(g: Graph, values: dict[str, Any]) -> dict[str, float]:
    """Largest error that FP16 may give each value, from the values of an FP32 run."""
    errors: dict[str, float] = {}
    for name in g.floats:
        arrived = g.bounds[name](values, errors) if name != "x" else 0.0
        errors[name] = arrived + ROUND * (largest(values[name]) + arrived) + 2 * TINY
    return errors
