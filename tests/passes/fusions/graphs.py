"""Small graphs of what the step ``fuse`` looks for, with values that tell halves, pairs, groups and positions apart."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]

B, N, S, D = 2, 3, 5, 8


class Graph:
    """A model in the making."""

    def __init__(self, dtype: str = "float32") -> None:
        self.dtype = np.dtype(dtype)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._count = 0

    def fed(self, name: str, shape: tuple[int | str, ...]) -> str:
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def constant(self, array: Array | list[int] | float) -> str:
        made = np.asarray(array)
        self._count += 1
        name = f"c{self._count}"
        made = made.astype(self.dtype) if made.dtype.kind == "f" else made.astype(np.int64)
        self.constants.append(numpy_helper.from_array(made, name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        self._count += 1
        names = [f"v{self._count}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def model(self, output: str, shape: tuple[int | str, ...], opset: int = 17) -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.nodes[-1].output[0] = "y"
        assert output == self.nodes[-1].output[0] or output.startswith("v")
        graph = helper.make_graph(
            self.nodes, "g", self.inputs, [helper.make_tensor_value_info("y", kind, shape)], self.constants
        )
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        onnx.checker.check_model(made, full_check=True)
        return made


def random(shape: tuple[int, ...], seed: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


Scale = Literal["none", "query", "key", "both", "product", "divided"]
Mask = Literal["none", "zeros", "causal", "fed", "two", "padding", "empty", "filled", "kept"]
Guard = Literal["none", "isnan", "asked"]
Layout = Literal["at once", "twice", "in three"]
Q, K = 5, 6
"""Queries and keys."""


def sdpa(
    scale: Scale = "both",
    mask: Mask = "none",
    guard: Guard = "none",
    layout: Layout = "twice",
    groups: int = 4,
    dtype: str = "float32",
    opset: int = 17,
    lead: tuple[int, int] = (1, 1),
    low: float = -np.inf,
) -> onnx.ModelProto:
    """Attention of 4 heads as exporters write it; ``lead``: batches and heads of the mask."""
    g, heads = Graph(dtype), 4
    q, k, v = (g.fed(name, (B, n, h * D)) for name, n, h in (("q", Q, heads), ("k", K, groups), ("v", K, groups)))
    q = g.op("Transpose", g.op("Reshape", q, g.constant([0, 0, heads, D])), perm=[0, 2, 1, 3])
    k, v = (g.op("Reshape", x, g.constant([0, 0, groups, D])) for x in (k, v))
    at_once = layout == "at once" and groups == heads
    if not at_once:
        k = _repeated(g, g.op("Transpose", k, perm=[0, 2, 1, 3]), groups, heads)
    v = _repeated(g, g.op("Transpose", v, perm=[0, 2, 1, 3]), groups, heads)
    if layout == "in three":
        k = g.op("Reshape", k, g.constant([-1, K, D]))
        k = g.op("Reshape", g.op("Transpose", k, perm=[0, 2, 1]), g.constant([B, heads, D, K]))
    else:
        k = g.op("Transpose", k, perm=[0, 2, 3, 1] if at_once else [0, 1, 3, 2])
    if scale in ("query", "both"):
        q = g.op("Mul", q, g.constant(0.5))
    if scale in ("key", "both"):
        k = g.op("Mul", g.constant(0.6), k)
    scores = g.op("MatMul", q, k)
    if scale in ("product", "divided"):
        scores = g.op("Mul" if scale == "product" else "Div", scores, g.constant(0.3 if scale == "product" else 3.0))
    scores, bias = _scored(g, scores, mask, lead, low)
    weights = g.op("Softmax", scores, axis=-1)
    if guard == "isnan":
        weights = g.op("Where", g.op("IsNaN", weights), g.constant(0.0), weights)
    elif guard == "asked":
        asked = g.op("Equal", g.op("ReduceMax", bias, axes=[-1]), g.constant(-np.inf))
        weights = g.op("Where", asked, g.constant(0.0), weights)
    together = g.op("Transpose", g.op("MatMul", weights, v), perm=[0, 2, 1, 3])
    return g.model(g.op("Reshape", together, g.constant([0, 0, heads * D])), (B, Q, heads * D), opset)


def _repeated(g: Graph, x: str, groups: int, heads: int) -> str:
    if groups == heads:
        return x
    apart = g.op("Expand", g.op("Unsqueeze", x, g.constant([2])), g.constant([1, 1, heads // groups, 1, 1]))
    return str(g.op("Reshape", apart, g.constant([B, heads, K, D])))


def _scored(g: Graph, scores: str, mask: Mask, lead: tuple[int, int], low: float) -> tuple[str, str]:
    """The scores with a mask, and the mask."""
    shape = (*lead, Q, K)
    if mask == "none":
        return scores, ""
    if mask == "zeros":
        bias = g.constant(np.zeros(shape))
    elif mask == "causal":
        bias = g.constant(np.broadcast_to(np.where(np.tri(Q, K, K - Q), 0.0, low), shape))
    elif mask in ("fed", "two"):
        bias = g.fed("m", shape)
    else:
        # the second batch of "empty" may look at nothing
        least = np.array([-9.0, 9.0 if mask == "empty" else -0.5]).reshape(B, 1, 1, 1)
        seen = g.op("Greater", g.fed("p", (B, 1, 1, K)), g.constant(least))
        if mask == "filled":
            return g.op("Where", g.op("Not", seen), g.constant(low), scores), ""
        if mask == "kept":
            return g.op("Where", seen, scores, g.constant(low)), ""
        bias = g.op("Where", seen, g.constant(0.0), g.constant(low))
    scores = g.op("Add", scores, bias)
    if mask == "two":
        scores = g.op("Add", g.constant(random((4, 1, K), 11)), scores)
    return scores, bias


Ends = Literal["added", "number", "kept", "filled", "spread", "two", "computed"]
Repeats = Literal["expand", "tile", "folded"]


def decoder(
    ends: Ends = "added", repeats: Repeats = "expand", groups: int = 2, dtype: str = "float32", guarded: bool = False,
    count: int = Q, past: int = 0, hole: bool = False, size: int = D, batch: int = B,
) -> onnx.ModelProto:  # fmt: skip
    """Causal attention of 4 heads over ``count`` positions and ``past`` cached ones.

    Args:
        repeats: how heads of keys are repeated; ``folded``: into the Reshape that turns them in three dimensions.
        hole: one position does not see the first.
    """
    g, heads, keys = Graph(dtype), 4, past + count
    q, k, v = (g.fed(name, (batch, count, h * size)) for name, h in (("q", heads), ("k", groups), ("v", groups)))

    def apart(x: str, h: int) -> str:
        return str(g.op("Transpose", g.op("Reshape", x, g.constant([0, 0, h, size])), perm=[0, 2, 1, 3]))

    def repeated(x: str, to: list[int]) -> str:
        if groups == heads:
            return x if to == [batch, heads, keys, size] else str(g.op("Reshape", x, g.constant(to)))
        x = g.op("Unsqueeze", x, g.constant([2]))
        x = g.op("Tile" if repeats == "tile" else "Expand", x, g.constant([1, 1, heads // groups, 1, 1]))
        return str(g.op("Reshape", x, g.constant(to)))

    q, k, v = apart(q, heads), apart(k, groups), apart(v, groups)
    if past:
        k, v = (
            g.op("Concat", g.fed(f"past_{name}", (batch, groups, past, size)), x, axis=2)
            for name, x in (("k", k), ("v", v))
        )
    if repeats == "folded":
        k = g.op("Transpose", repeated(k, [batch * heads, keys, size]), perm=[0, 2, 1])
        k = g.op("Reshape", k, g.constant([batch, heads, size, keys]))
    else:
        k = g.op("Transpose", repeated(k, [batch, heads, keys, size]), perm=[0, 1, 3, 2])
    v = repeated(v, [batch, heads, keys, size])
    scores = g.op("MatMul", g.op("Mul", q, g.constant(0.5)), k)
    weights = g.op("Softmax", _ended(g, ends, scores, batch, past, hole, count))
    if guarded:
        weights = g.op("Where", g.op("IsNaN", weights), g.constant(0.0), weights)
    together = g.op("Transpose", g.op("MatMul", weights, v), perm=[0, 2, 1, 3])
    shape = (batch, count, heads * size)
    return g.model(g.op("Reshape", together, g.constant([0, 0, heads * size])), shape)


def _ended(g: Graph, ends: Ends, scores: str, batch: int, past: int, hole: bool, count: int) -> str:
    """The scores, masked for what is behind each position."""
    seen = np.tri(count, past + count, past, dtype=bool)
    if hole:
        seen[2, 0] = False
    low = {"number": -1e4 if g.dtype == np.float32 else -57344.0}.get(ends, float(np.finfo(g.dtype).min))
    if ends in ("kept", "filled"):
        name = f"c{len(g.constants)}_seen"
        g.constants.append(numpy_helper.from_array(seen if ends == "kept" else ~seen, name))
        least = g.constant(-np.inf)
        return str(g.op("Where", name, *((scores, least) if ends == "kept" else (least, scores))))
    if ends == "computed":  # as exporters write it: each position is gathered, and the two compared
        order = g.constant(np.arange(past + count)[None])
        at = (np.arange(count) + past, np.arange(past + count))
        row, column = (
            g.op("GatherND", order, g.constant(np.stack([0 * i, i], -1).reshape(1, 1, *shape, 2)))
            for i, shape in zip(at, ((count, 1), (1, past + count)), strict=True)
        )
        least = g.constant(float(np.finfo(g.dtype).min))
        bias = g.op("Where", g.op("LessOrEqual", column, row), g.constant(0.0), least)
        return str(g.op("Add", scores, bias))
    if ends == "two":  # one mask for what comes next, one for what comes after that
        further = seen | np.tri(count, past + count, past + 1, dtype=bool)
        scores = g.op("Add", scores, g.constant(np.where(further, 0.0, -np.inf)))
        return str(g.op("Add", g.constant(np.where(further & ~seen, low, 0.0)), scores))
    bias = np.where(seen, 0.0, low)
    return str(
        g.op("Add", scores, g.constant(np.broadcast_to(bias, (batch, 1, *bias.shape)) if ends == "spread" else bias))
    )


Kind = Literal["halves", "pairs"]
Form = Literal["one sum", "two sums"]
Tables = Literal["constant", "computed", "fed"]


def rotation(
    kind: Kind, form: Form, tables: Tables, heads_first: bool, dtype: str = "float32", opset: int = 17, rest: int = 0
) -> onnx.ModelProto:
    """A rotation of ``x``, [B, N, S, D] or [B, S, N, D]; ``rest`` elements of each head are not turned."""
    g = Graph(dtype)
    shape = (B, N, S, D + rest) if heads_first else (B, S, N, D + rest)
    x = whole = g.fed("x", shape)
    last = g.constant([3])
    if rest:
        x = g.op("Slice", whole, g.constant([0]), g.constant([D]), last)
    angles = np.outer(np.arange(S), 0.7 ** np.arange(D // 2)).astype(np.float32)
    wide = form == "one sum"
    cos, sin = _tables(g, tables, kind, wide, angles, heads_first)
    if kind == "halves":
        left = g.op("Slice", x, g.constant([0]), g.constant([D // 2]), last)
        right = g.op("Slice", x, g.constant([D // 2]), g.constant([2**63 - 1]), last)
    else:
        end, two = g.constant([2**63 - 1]), g.constant([2])
        left, right = (g.op("Slice", x, g.constant([start]), end, last, two) for start in (0, 1))
    if wide:
        turned = _join(g, kind, g.op("Neg", right), left, heads_first)
        y = g.op("Add", g.op("Mul", x, cos), g.op("Mul", turned, sin))
    else:
        real = g.op("Sub", g.op("Mul", left, cos), g.op("Mul", right, sin))
        imaginary = g.op("Add", g.op("Mul", right, cos), g.op("Mul", left, sin))
        y = _join(g, kind, real, imaginary, heads_first)
    if rest:
        kept = g.op("Slice", whole, g.constant([D]), g.constant([D + rest]), last)
        y = g.op("Concat", y, kept, axis=-1)
    return g.model(y, shape, opset)


def _tables(g: Graph, tables: Tables, kind: Kind, wide: bool, angles: Array, heads_first: bool) -> list[str]:
    axis = 1 if heads_first else 2
    if tables == "constant":
        spread = np.expand_dims(angles[None], axis)
        if wide:
            spread = np.concatenate([spread, spread], -1) if kind == "halves" else np.repeat(spread, 2, -1)
        return [g.constant(np.cos(spread)), g.constant(np.sin(spread))]
    if tables == "fed":
        angle = g.fed("angles", (B, S, D // 2))
    else:
        angle = g.op("Mul", g.constant(np.arange(1.0, S + 1)[:, None]), g.constant(0.7 ** np.arange(D // 2)))
        angle = g.op("Unsqueeze", angle, g.constant([0]))
    if wide and kind == "halves":
        angle = g.op("Concat", angle, angle, axis=-1)
    elif wide:
        apart = g.op("Unsqueeze", angle, g.constant([3]))
        twice = g.op("Expand", apart, g.constant([1, 1, 1, 2]))
        angle = g.op("Reshape", twice, g.constant([0, 0, D]))
    return [g.op("Unsqueeze", g.op(op, angle), g.constant([axis])) for op in ("Cos", "Sin")]


def _join(g: Graph, kind: Kind, left: str, right: str, heads_first: bool) -> str:
    if kind == "halves":
        return g.op("Concat", left, right, axis=-1)
    pairs = g.op("Concat", *(g.op("Unsqueeze", v, g.constant([4])) for v in (left, right)), axis=4)
    return g.op("Reshape", pairs, g.constant([B, N, S, D] if heads_first else [B, S, N, D]))


def group_norm(
    shape: tuple[int, ...], groups: int, swish: bool, affine: bool, dtype: str = "float32"
) -> onnx.ModelProto:
    """GroupNorm of ``x`` as PyTorch's exporter writes it."""
    g = Graph(dtype)
    x, rank, channels = g.fed("x", shape), len(shape), shape[1]
    a = g.op("Reshape", x, g.constant([0, groups, -1]))
    b = g.op("InstanceNormalization", a, g.constant(np.ones(groups)), g.constant(np.zeros(groups)), epsilon=1e-5)
    y = g.op("Reshape", b, g.constant(list(shape)))
    if affine:
        weight = (channels, *[1] * (rank - 2))
        y = g.op("Mul", y, g.constant(random(weight, 2) + 1))
        y = g.op("Add", y, g.constant(random(weight, 3)))
    if swish:
        y = g.op("Mul", y, g.op("Sigmoid", y))
    return g.model(y, shape)


def skip_norm(dtype: str = "float32", gamma: bool = True, inverse: bool = False) -> onnx.ModelProto:
    """RMS normalization of ``x + k``."""
    g = Graph(dtype)
    x, k = g.fed("x", (2, 5, 16)), g.fed("k", (2, 5, 16))
    total = g.op("Add", x, k)
    mean = g.op("ReduceMean", g.op("Mul", total, total), axes=[-1])
    root = g.op("Sqrt", g.op("Add", mean, g.constant(1e-3)))
    y = g.op("Mul", total, g.op("Reciprocal", root)) if inverse else g.op("Div", total, root)
    if gamma:
        y = g.op("Mul", g.constant(random((16,), 4)), y)
    return g.model(y, (2, 5, 16))
