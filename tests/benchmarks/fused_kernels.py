"""What DirectML's kernels of fused operators take, and what they give.

GroupNorm, RotaryEmbedding, SkipSimplifiedLayerNormalization, MultiHeadAttention, GroupQueryAttention.

``python -m tests.benchmarks.fused_kernels [--release 1.24.4] [--only groupnorm]``: models of one node each on DirectML
against the formula in float64 (FP16: of the rounded inputs). What fails here is not matched by the step ``fuse``.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from dmlprep.runtime import SessionFailure, SessionHost, SessionOptions, dml_host, dml_status, open_dml

Array = np.ndarray[Any, Any]
FLOAT: dict[str, int] = {"float32": onnx.TensorProto.FLOAT, "float16": onnx.TensorProto.FLOAT16}
CLOSE = {"float32": 1e-5, "float16": 4e-3}
"""max|difference| / max|reference|; FP16 is cut, not rounded, by the driver on Linux."""


@dataclass(frozen=True)
class Case:
    """One node, what it is fed, and what the formula gives."""

    name: str
    dtype: str
    node: onnx.NodeProto
    feeds: dict[str, Array]
    constants: dict[str, Array]
    expected: dict[str, Array]


def random_array(shape: tuple[int, ...], dtype: str, seed: int, scale: float = 1.0, shift: float = 0.0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * scale + shift).astype(dtype)


def group_norm(
    x: Array, gamma: Array, beta: Array, groups: int, epsilon: float, swish: bool, channels_last: bool
) -> Array:
    """The formula, in float64."""
    data = x.astype(np.float64)
    if channels_last:
        data = np.moveaxis(data, -1, 1)
    n, c = data.shape[:2]
    grouped = data.reshape(n, groups, -1)
    grouped = (grouped - grouped.mean(-1, keepdims=True)) / np.sqrt(grouped.var(-1, keepdims=True) + epsilon)
    lead = (1, c, *(1,) * (data.ndim - 2))
    y = grouped.reshape(data.shape) * gamma.astype(np.float64).reshape(lead) + beta.astype(np.float64).reshape(lead)
    if swish:
        y = y / (1 + np.exp(-y))
    return np.moveaxis(y, 1, -1) if channels_last else y


def group_norms() -> Iterator[Case]:
    """Layouts, activation, types of gamma and beta, batches, groups, ranks, large values."""
    shapes = [((1, 32, 8, 8), 8), ((2, 32, 5, 7), 32), ((2, 30, 4, 6), 1), ((1, 64, 1, 1), 8), ((1, 320, 16, 16), 32)]
    more = [((2, 32, 24), 8), ((2, 32), 8), ((1, 16, 2, 4, 3), 4)]
    for dtype, last, swish in itertools.product(FLOAT, (0, 1), (0, 1)):
        for (shape, groups), weights in itertools.product(shapes + more, FLOAT):
            for scale, shift in ((1.0, 0.0), (100.0, 500.0)) if shape == shapes[0][0] else ((1.0, 0.0),):
                laid = (shape[0], *shape[2:], shape[1]) if last else shape
                x = random_array(laid, dtype, 1, scale, shift)
                gamma, beta = (
                    random_array((shape[1],), weights, 2, 0.3, 1.0),
                    random_array((shape[1],), weights, 3, 0.3),
                )
                node = helper.make_node(
                    "GroupNorm", ["x", "g", "b"], ["y"], domain="com.microsoft",
                    groups=groups, epsilon=1e-5, activation=swish, channels_last=last,
                )  # fmt: skip
                yield Case(
                    f"GroupNorm {dtype} {list(shape)} groups={groups} channels_last={last} activation={swish} "
                    f"gamma {weights} values {shift:g}+-{scale:g}",
                    dtype, node, {"x": x}, {"g": gamma, "b": beta},
                    {"y": group_norm(x, gamma, beta, groups, 1e-5, bool(swish), bool(last))},
                )  # fmt: skip


def rotary(x: Array, cos: Array, sin: Array, interleaved: bool, width: int) -> Array:
    """The formula, in float64; ``x`` [batch, heads, sequence, size], ``cos`` [batch, sequence, width / 2]."""
    data, c, s = x.astype(np.float64), cos.astype(np.float64)[:, None], sin.astype(np.float64)[:, None]
    part, rest = data[..., :width], data[..., width:]
    if interleaved:
        left, right = part[..., 0::2], part[..., 1::2]
        done = np.stack([left * c - right * s, right * c + left * s], -1).reshape(part.shape)
    else:
        left, right = part[..., : width // 2], part[..., width // 2 :]
        done = np.concatenate([left * c - right * s, right * c + left * s], -1)
    return np.concatenate([done, rest], -1)


def rotaries() -> Iterator[Case]:
    """Ranks, interleaved or halves, batches, forms of the positions, a part of each head."""
    for dtype, rank, interleaved, partial in itertools.product(FLOAT, (3, 4), (0, 1), (0, 8)):
        for batch, heads, form in itertools.product((1, 2), (1, 3), ("offset", "each", "shuffled")):
            sequence, size, longest = 5, 16, 12
            width = partial or size
            x = random_array((batch, heads, sequence, size), dtype, 1)
            angles = np.outer(np.arange(longest), 10.0 ** -np.arange(width // 2))
            cos, sin = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
            positions = {
                "offset": np.array([3], np.int64),
                "each": np.tile(np.arange(sequence, dtype=np.int64), (batch, 1)),
                "shuffled": np.random.default_rng(5).integers(0, longest, (batch, sequence)).astype(np.int64),
            }[form]
            at = np.tile(positions + np.arange(sequence), (batch, 1)) if form == "offset" else positions
            given = x if rank == 4 else np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(batch, sequence, -1)
            y = rotary(x, cos[at], sin[at], bool(interleaved), width)
            y = y if rank == 4 else y.transpose(0, 2, 1, 3).reshape(batch, sequence, -1)
            more = {"num_heads": heads} if partial or rank == 3 else {}
            more |= {"rotary_embedding_dim": partial} if partial else {}
            node = helper.make_node(
                "RotaryEmbedding", ["x", "p", "c", "s"], ["y"], domain="com.microsoft", interleaved=interleaved, **more
            )
            for stored in ("constant", "fed"):
                loose = {"p": positions, "c": cos, "s": sin}
                yield Case(
                    f"RotaryEmbedding {dtype} rank {rank} batch {batch} heads {heads} interleaved={interleaved} "
                    f"part {partial} positions {form} caches {stored}",
                    dtype, node, {"x": given, **(loose if stored == "fed" else {})},
                    loose if stored == "constant" else {}, {"y": y},
                )  # fmt: skip


def skip_norms() -> Iterator[Case]:
    """Ranks, bias or none, with and without the sum, large values."""
    for dtype, shape, bias, outputs in itertools.product(FLOAT, ((2, 5, 16), (7, 16)), (0, 1), (1, 4)):
        for scale in (1.0, 300.0):
            x, skip = random_array(shape, dtype, 1, scale), random_array(shape, dtype, 2)
            gamma, add = random_array((16,), dtype, 3, 0.3, 1.0), random_array((16,), dtype, 4)
            total = x.astype(np.float64) + skip.astype(np.float64) + (add.astype(np.float64) if bias else 0)
            y = total / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-6) * gamma.astype(np.float64)
            node = helper.make_node(
                "SkipSimplifiedLayerNormalization", ["x", "k", "g", *(["d"] if bias else [])],
                ["y", "", "", "t"][:outputs], domain="com.microsoft", epsilon=1e-6,
            )  # fmt: skip
            yield Case(
                f"SkipSimplifiedLayerNormalization {dtype} {list(shape)} bias={bias} sum={int(outputs == 4)} "
                f"values +-{scale:g}",
                dtype, node, {"x": x, "k": skip}, {"g": gamma, **({"d": add} if bias else {})},
                {"y": y, **({"t": total} if outputs == 4 else {})},
            )  # fmt: skip


def attention(q: Array, k: Array, v: Array, heads: int, kv_heads: int, scale: float, bias: Array | None) -> Array:
    """The formula, in float64; ``q`` [batch, queries, heads * size], ``k``, ``v`` [batch, keys, kv_heads * size]."""

    def apart(x: Array, count: int) -> Array:
        batch, length, _ = x.shape
        laid = x.astype(np.float64).reshape(batch, length, count, -1).transpose(0, 2, 1, 3)
        return np.repeat(laid, heads // count, 1)

    scores = apart(q, heads) @ apart(k, kv_heads).transpose(0, 1, 3, 2) * scale
    if bias is not None:
        scores = scores + bias.astype(np.float64)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y = (weights / weights.sum(-1, keepdims=True)) @ apart(v, kv_heads)
    return y.transpose(0, 2, 1, 3).reshape(*q.shape[:2], -1)


def attention_biases(dtype: str, batch: int, heads: int, queries: int, keys: int) -> dict[str, Array]:
    """Masks by name: the full shape, random and of rows that end in what no score outweighs."""
    ends = np.where(np.tri(queries, keys, keys - queries, dtype=bool), 0.0, -np.inf)
    full = (batch, heads, queries, keys)
    lowest = float(np.finfo(dtype).min)
    return {
        "random": random_array(full, dtype, 7),
        "-inf": np.broadcast_to(ends, full).astype(dtype),
        "lowest": np.broadcast_to(np.maximum(ends, lowest), full).astype(dtype),
    }


def attentions() -> Iterator[Case]:
    """Heads, lengths, batches, a scale, biases of the full shape, large values, values of another size."""
    plain = [(1, 1, 5, 5), (2, 3, 4, 7), (2, 4, 1, 9), (1, 2, 16, 16)]
    for dtype, (batch, heads, queries, keys) in itertools.product(FLOAT, plain):
        for bias, scale, loud, wide in (
            ("", 0.0, 1.0, 16), ("", 0.3, 1.0, 16), ("", 0.0, 1.0, 24), ("", 2.0**-16, 200.0, 16),
            ("random", 0.0, 1.0, 16), ("random", 0.3, 1.0, 24), ("-inf", 0.0, 1.0, 16), ("lowest", 0.3, 1.0, 16),
        ):  # fmt: skip
            yield _attention(dtype, (batch, heads, queries, keys), wide, scale, loud, bias, None)


def spread_attentions() -> Iterator[Case]:
    """Biases that are broadcast over batches or heads, which the CPU provider takes."""
    for dtype, only in itertools.product(FLOAT, ((1, 1), (1, 3), (2, 1))):
        yield _attention(dtype, (2, 3, 4, 7), 16, 0.0, 1.0, "random", only)


def _attention(
    dtype: str, sizes: tuple[int, int, int, int], wide: int, scale: float, loud: float, bias: str,
    only: tuple[int, int] | None,
) -> Case:  # fmt: skip
    batch, heads, queries, keys = sizes
    q, k = (random_array((batch, n, heads * 16), dtype, n, loud) for n in (queries, keys))
    v = random_array((batch, keys, heads * wide), dtype, 3)
    mask = attention_biases(dtype, batch, heads, queries, keys).get(bias)
    if mask is not None and only is not None:
        mask = mask[: only[0], : only[1]]
    feeds = {"q": q, "k": k, "v": v} | ({"m": mask} if mask is not None else {})
    node = helper.make_node(
        "MultiHeadAttention", ["q", "k", "v", *(["", "", "m"] if mask is not None else [])], ["y"],
        domain="com.microsoft", num_heads=heads, **({"scale": scale} if scale else {}),
    )  # fmt: skip
    y = attention(q, k, v, heads, heads, scale or 16**-0.5, mask)
    shape = f" of {list(mask.shape)}" if mask is not None else ""
    return Case(
        f"MultiHeadAttention {dtype} batch {batch} heads {heads} queries {queries} keys {keys} size {wide} "
        f"scale {scale:g} values +-{loud:g} bias {bias or 'none'}{shape}",
        dtype, node, feeds, {}, {"y": y},
    )  # fmt: skip


def grouped_attentions() -> Iterator[Case]:
    """Causal attention of grouped heads over a whole sequence: heads, groups, lengths, sizes, a scale, large values."""
    plain = [
        (1, 4, 2, 5, 16),
        (2, 4, 1, 5, 16),
        (2, 3, 3, 5, 16),
        (1, 8, 2, 33, 64),
        (1, 2, 2, 130, 128),
        (3, 4, 2, 7, 24),
    ]
    for dtype, sizes, (scale, loud) in itertools.product(FLOAT, plain, ((0.0, 1.0), (0.3, 1.0), (2.0**-16, 200.0))):
        yield _grouped(dtype, sizes, scale, loud)


def far_scores() -> Iterator[Case]:
    """Scores of one query that are tens of thousands apart."""
    for dtype in FLOAT:
        yield _grouped(dtype, (1, 2, 1, 5, 16), 1.0, 100.0)


def lone_outputs() -> Iterator[Case]:
    """One output in place of three."""
    for dtype in FLOAT:
        yield _grouped(dtype, (1, 4, 2, 5, 16), 0.0, 1.0, outputs=1)


def cached() -> Iterator[Case]:
    """Past keys and values that are fed, before one token and before several."""
    for dtype, count in itertools.product(FLOAT, (1, 3)):
        yield _grouped(dtype, (1, 4, 2, count, 16), 0.0, 1.0, past=7)


def _grouped(
    dtype: str, sizes: tuple[int, int, int, int, int], scale: float, loud: float, outputs: int = 3, past: int = 0
) -> Case:
    batch, heads, groups, count, size = sizes
    keys = past + count
    q, k = (random_array((batch, count, n * size), dtype, n, loud) for n in (heads, groups))
    v = random_array((batch, count, groups * size), dtype, 3)
    before = {name: random_array((batch, groups, past, size), dtype, n) for n, name in ((4, "pk"), (5, "pv"))}
    caches = [
        np.concatenate([p, x.reshape(batch, count, groups, size).transpose(0, 2, 1, 3)], 2).astype(np.float64)
        for p, x in zip(before.values(), (k, v), strict=True)
    ]
    flat = [x.transpose(0, 2, 1, 3).reshape(batch, keys, -1) for x in caches]
    ends = np.where(np.tri(count, keys, past, dtype=bool), 0.0, -np.inf)
    node = helper.make_node(
        "GroupQueryAttention", ["q", "k", "v", *(before if past else ("", "")), "n", "t"], ["y", "ok", "ov"][:outputs],
        domain="com.microsoft", num_heads=heads, kv_num_heads=groups, **({"scale": scale} if scale else {}),
    )  # fmt: skip
    y = attention(q, flat[0], flat[1], heads, groups, scale or size**-0.5, ends)
    return Case(
        f"GroupQueryAttention {dtype} batch {batch} heads {heads} groups {groups} tokens {count} past {past} "
        f"size {size} scale {scale:g} values +-{loud:g} outputs {outputs}",
        dtype, node, {"q": q, "k": k, "v": v, **(before if past else {})},
        {"n": np.full(batch, keys - 1, np.int32), "t": np.array(keys, np.int32)},
        dict(zip(("y", "ok", "ov")[:outputs], (y, *caches), strict=False)),
    )  # fmt: skip


KINDS = {
    "groupnorm": group_norms,
    "rotary": rotaries,
    "skip": skip_norms,
    "attention": attentions,
    "grouped": grouped_attentions,
}
"""What the step writes, and ``write_out`` writes out."""
ALSO = {
    "spread bias": spread_attentions,
    "far": far_scores,
    "lone": lone_outputs,
    "cached": cached,
}
"""What was tried as well."""


def together(cases: list[Case]) -> onnx.ModelProto:
    """One model with the node of each case: a session costs far more than a node."""
    nodes, inputs, outputs, constants = [], [], [], []
    for index, case in enumerate(cases):
        node = onnx.NodeProto()
        node.CopyFrom(case.node)
        for names in (node.input, node.output):
            names[:] = [f"{name}_{index}" if name else "" for name in names]
        nodes.append(node)
        for name, array in case.feeds.items():
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(f"{name}_{index}", kind, array.shape))
        constants += [onnx.numpy_helper.from_array(array, f"{name}_{index}") for name, array in case.constants.items()]
        for name, array in case.expected.items():
            outputs.append(helper.make_tensor_value_info(f"{name}_{index}", FLOAT[case.dtype], array.shape))
    graph = helper.make_graph(nodes, "kernels", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def answers(cases: list[Case], host: SessionHost, folder: Path) -> dict[str, Array]:
    """Outputs of the cases in one session that gives no node to the CPU."""
    path = folder / "model.onnx"
    path.write_bytes(together(cases).SerializeToString())
    options = SessionOptions(time_limit=300, cpu_fallback=False)
    with open_dml(path, options, host) as session:
        feeds = {f"{name}_{i}": array for i, case in enumerate(cases) for name, array in case.feeds.items()}
        return session.run(feeds)


def judge(cases: list[Case], host: SessionHost, folder: Path) -> Iterator[tuple[Case, str]]:
    """What became of each case: empty where it is right. A batch that fails is halved until one case stands alone."""
    try:
        found = answers(cases, host, folder)
    except SessionFailure as failure:
        if len(cases) > 1:
            middle = len(cases) // 2
            yield from judge(cases[:middle], host, folder)
            yield from judge(cases[middle:], host, folder)
        else:
            yield cases[0], f"{failure.kind} fails: {' '.join(failure.message.split())[:160]}"
        return
    for index, case in enumerate(cases):
        worst = 0.0
        for name, expected in case.expected.items():
            got = found[f"{name}_{index}"].astype(np.float64)
            worst = max(worst, float(np.max(np.abs(got - expected)) / max(float(np.max(np.abs(expected))), 1e-30)))
        yield case, "" if worst <= CLOSE[case.dtype] else f"wrong numbers: {worst:.2g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--release", default="", help="of onnxruntime-directml; empty for the newest installed")
    parser.add_argument("--only", choices=sorted(KINDS | ALSO), action="append", default=None)
    parser.add_argument("--batch", type=int, default=32, help="nodes in one session")
    arguments = parser.parse_args()
    status = dml_status(arguments.release)
    if not status.available:
        print(f"NOT RUN: {status.reason}", file=sys.stderr)
        return 3
    print(status.device)
    host = dml_host(arguments.release)
    with tempfile.TemporaryDirectory() as folder:
        for kind in arguments.only or KINDS | ALSO:
            cases, wrong = list((KINDS | ALSO)[kind]()), 0
            for start in range(0, len(cases), arguments.batch):
                for case, fault in judge(cases[start : start + arguments.batch], host, Path(folder)):
                    wrong += bool(fault)
                    if fault:
                        print(f"{case.name}: {fault}", flush=True)
            print(f"{kind}: {len(cases) - wrong} of {len(cases)} right", flush=True)
    host.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
