"""Each optional input and attribute of DirectML's com.microsoft kernels: what `check` predicts, and what DirectML does.

``python -m tests.benchmarks.contrib_forms [--release 1.24.4] [--only Attention]``: models of one node in FP32 against
the CPU provider, or against numpy where the CPU has no kernel. A form that is wrong without a finding is a gap.
NhwcConv is left out: ONNX Runtime alone writes it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.quirks import find_quirks
from dmlprep.directml.targets import find_target
from dmlprep.graph.model import Model
from dmlprep.runtime import SessionFailure, SessionHost, SessionOptions, cpu_host, dml_host, dml_status, open_dml
from dmlprep.runtime.session import open_on

Array = np.ndarray[Any, Any]
CLOSE = 1e-4
STEPS = 1
"""Levels by which an integer output may be off: both round."""


@dataclass(frozen=True)
class Form:
    """One node: its inputs in order (``None`` where left out), its attributes and outputs."""

    op: str
    what: str
    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any]
    outputs: Sequence[str] = ("y",)
    stored: frozenset[int] = frozenset()
    expected: Array | None = None

    @property
    def name(self) -> str:
        return f"{self.op} {self.what}"


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    return (np.random.default_rng((seed, *shape)).standard_normal(shape) * scale).astype(np.float32)


def whole(kind: type, *shape: int, seed: int = 0, low: int = 0, high: int = 100) -> Array:
    return np.random.default_rng((seed, *shape)).integers(low, high, shape).astype(kind)


def i32(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


def i64(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def f32(number: float) -> Array:
    return np.array(number, np.float32)


def with_more(
    op: str, base: Sequence[Array | None], attributes: Mapping[str, Any], more: Mapping[str, Any],
    outputs: Sequence[str] = ("y",), stored: Sequence[int] = (),
) -> Iterator[Form]:  # fmt: skip
    """The base form, and one for each of ``more``: inputs by position, attributes by name, or ``outputs``."""
    for what, change in {"plain": {}, **more}.items():
        slots, own, named = list(base), dict(attributes), outputs
        for key, value in change.items():
            if key == "outputs":
                named = value
            elif isinstance(key, str):
                own[key] = value
            else:
                slots += [None] * (key + 1 - len(slots))
                slots[key] = value
        yield Form(op, what, slots, own, named, frozenset(stored))


def grouped() -> Iterator[Form]:
    b, t, heads, groups, size = 1, 5, 4, 2, 16
    q, k, v = normal(b, t, heads * size), normal(b, t, groups * size, seed=1), normal(b, t, groups * size, seed=2)
    angles = np.outer(np.arange(16), 100.0 ** -(np.arange(size // 2) / (size // 2)))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    norm = {14: np.linspace(0.5, 2, size, dtype=np.float32), 15: np.linspace(2, 0.5, size, dtype=np.float32)}
    spins = {7: cos, 8: sin, "do_rotary": 1}
    scales = {12: np.array([0.01], np.float32), 13: np.array([0.02], np.float32)}
    quantized = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
    empty = {3: np.zeros((b, groups, 0, size), np.int8), 4: np.zeros((b, groups, 0, size), np.int8)}
    more: dict[str, Any] = {
        "scale": {"scale": 0.3},
        "softcap": {"softcap": 2.0},
        "window": {"local_window_size": 2},
        "wide window": {"local_window_size": 9},
        "smooth": {"smooth_softmax": 1},
        "rotates": spins,
        "rotates interleaved": spins | {"rotary_interleaved": 1},
        "rotates at positions": spins | {9: np.arange(t, dtype=np.int64)[None] + 2},
        "tables that nothing reads": {7: cos, 8: sin},
        "positions that nothing reads": {9: np.arange(t, dtype=np.int64)[None]},
        "attention_bias": {10: normal(b, heads, t, t)},
        "head_sink": {11: normal(heads)},
        "scales that nothing reads": scales,
        "int8 cache": scales | quantized | empty,
        "q_norm and k_norm": norm,
        "q_norm and k_norm, epsilon": norm | {"qk_norm_epsilon": 0.1},
        "q_norm and k_norm, epsilons": norm | {"q_norm_epsilon": 0.1, "k_norm_epsilon": 0.5},
        "q_norm and k_norm, rotates": norm | spins,
        "q_norm alone": {14: norm[14]},
        "not causal": {"causal": 0},
        "sliding window cache": {"sliding_window_cache": 1, "local_window_size": 9},
        "query_seqlens": {16: i32(t)},
        "qk output": {"qk_output": 1, "outputs": ("y", "ok", "ov", "qk")},
        "epsilon that nothing reads": {"qk_norm_epsilon": 0.1},
        "cache width that nothing reads": {"kv_cache_bit_width": 8},
    }
    base = [q, k, v, None, None, i32(t - 1), i32(t).reshape(())]
    yield from with_more(
        "GroupQueryAttention",
        base,
        {"num_heads": heads, "kv_num_heads": groups},
        more,
        ("y", "ok", "ov"),
        (5, 6, 14, 15),
    )


def multi_head() -> Iterator[Form]:
    b, t, heads, size = 2, 5, 3, 16
    q, k, v = (normal(b, t, heads * size, seed=n) for n in range(3))
    past = {6: normal(b, heads, 4, size, seed=6), 7: normal(b, heads, 4, size, seed=7)}
    present = ("y", "ok", "ov")
    padded = np.ones((b, t), np.int32)
    padded[1, 3:] = 0
    more: dict[str, Any] = {
        "scale": {"scale": 0.3},
        "unidirectional": {"unidirectional": 1},
        "bias": {3: normal(3 * heads * size)},
        "key_padding_mask by length": {4: i32(5, 3)},
        "key_padding_mask by key": {4: padded},
        "key_padding_mask by key, value": {4: padded, "mask_filter_value": -2.0},
        "key_padding_mask of three": {4: np.broadcast_to(padded[:, None], (b, t, t)).copy()},
        "mask_filter_value that nothing reads": {"mask_filter_value": -2.0},
        "attention_bias": {5: normal(b, heads, t, t)},
        "attention_bias and mask": {5: normal(b, heads, t, t), 4: padded},
        "presents": {"outputs": present},
        "past": past | {"outputs": present},
        "past and bias": past | {3: normal(3 * heads * size), "outputs": present},
        "past and mask": past | {4: np.ones((b, t + 4), np.int32), "outputs": present},
        "past without presents": past,
        "packed": {0: normal(b, t, heads, 3, size), 1: None, 2: None},
        "keys and values packed": {1: normal(b, t, heads, 2, size), 2: None},
        "keys and values apart": {1: normal(b, heads, t, size), 2: normal(b, heads, t, size, seed=3)},
        "qk output": {"outputs": ("y", "", "", "qk")},
    }
    yield from with_more("MultiHeadAttention", [q, k, v], {"num_heads": heads}, more)


def attention() -> Iterator[Form]:
    b, t, heads, size, width = 2, 5, 3, 16, 24
    own = heads * size
    base = [normal(b, t, width), normal(width, 3 * own, scale=0.2), normal(3 * own)]
    by_key = np.ones((b, t), np.int32)
    by_key[1, 3:] = 0
    more: dict[str, Any] = {
        "without bias": {2: None},
        "mask by length": {3: i32(5, 3)},
        "mask by ends and starts": {3: i32(5, 3, 0, 1)},
        "mask by key": {3: by_key},
        "mask by key, value": {3: by_key, "mask_filter_value": -2.0},
        "mask of three": {3: np.broadcast_to(by_key[:, None], (b, t, t)).copy()},
        "mask of four": {3: np.tri(8, dtype=np.int32)[None, None].repeat(b, 0)},
        "past": {4: normal(2, b, heads, 4, size), "outputs": ("y", "p")},
        "present": {"outputs": ("y", "p")},
        "attention_bias": {5: normal(b, heads, t, t)},
        "attention_bias of one": {5: normal(1, 1, t, t)},
        "attention_bias and mask": {5: normal(b, heads, t, t), 3: by_key},
        "scale": {"scale": 0.3},
        "unidirectional": {"unidirectional": 1},
        "qkv_hidden_sizes": {
            1: normal(width, 3 * own - 24, scale=0.2), 2: normal(3 * own - 24), "qkv_hidden_sizes": [own, own, own - 24]
        },
        "rotary_embedding_dim that nothing reads": {"rotary_embedding_dim": 32},
        "mask_filter_value that nothing reads": {"mask_filter_value": -2.0},
    }  # fmt: skip
    yield from with_more("Attention", base, {"num_heads": heads}, more, stored=(1, 2))
    base = [
        whole(np.uint8, b, t, width), whole(np.int8, width, 3 * own, low=-50, high=50), normal(3 * own),
        f32(0.02), f32(0.01), None, np.array(40, np.uint8), np.array(3, np.int8),
    ]  # fmt: skip
    more = {
        "mask by length": {5: i32(5, 3)},
        "mask by key": {5: by_key},
        "mask by key, value": {5: by_key, "mask_filter_value": -2.0},
        "without input zero point": {6: None},
        "without weight zero point": {7: None},
        "without zero points": {6: None, 7: None},
        "scale of each column": {4: np.linspace(0.005, 0.02, 3 * own, dtype=np.float32), 7: np.zeros(3 * own, np.int8)},
        "scales of one dimension": {3: np.array([0.02], np.float32), 4: np.array([0.01], np.float32)},
        "weights of uint8": {1: whole(np.uint8, width, 3 * own), 7: np.array(50, np.uint8)},
        "past": {8: normal(2, b, heads, 4, size), "outputs": ("y", "p")},
        "present": {"outputs": ("y", "p")},
        "scale": {"scale": 0.3},
        "unidirectional": {"unidirectional": 1},
    }
    yield from with_more("QAttention", base, {"num_heads": heads}, more, stored=(1, 2, 3, 4, 6, 7))


def norms() -> Iterator[Form]:
    x, skip, g, beta, bias = (
        normal(2, 5, 16),
        normal(2, 5, 16, seed=1),
        normal(16),
        normal(16, seed=2),
        normal(16, seed=3),
    )
    more: dict[str, Any] = {
        "beta": {3: beta},
        "bias": {4: bias},
        "beta and bias": {3: beta, 4: bias},
        "sum": {3: beta, "outputs": ("y", "", "", "t")},
        "bias and sum": {3: beta, 4: bias, "outputs": ("y", "", "", "t")},
        "epsilon": {3: beta, "epsilon": 0.3},
        "skip of one batch": {1: skip[:1], 3: beta},
        "skip of two dimensions": {1: skip[0], 3: beta},
        "skip of one batch, sum": {1: skip[:1], 3: beta, "outputs": ("y", "", "", "t")},
    }
    yield from with_more("SkipLayerNormalization", [x, skip, g], {}, more)
    more = {
        "bias": {3: bias},
        "sum": {"outputs": ("y", "", "", "t")},
        "bias and sum": {3: bias, "outputs": ("y", "", "", "t")},
        "epsilon": {"epsilon": 0.3},
        "skip of one batch": {1: skip[:1]},
        "skip of two dimensions": {1: skip[0]},
    }
    yield from with_more("SkipSimplifiedLayerNormalization", [x, skip, g], {}, more)
    ids, kinds = whole(np.int32, 2, 5, high=9), whole(np.int32, 2, 5, high=2, seed=1)
    mask = np.ones((2, 5), np.int32)
    mask[1, 3:] = 0
    base = [ids, kinds, normal(9, 16), normal(7, 16), normal(2, 16), g, beta]
    more = {
        "without segments": {1: None, 4: None},
        "mask index of starts": {"mask_index_type": 1},
        "no mask index": {"mask_index_type": 0},
        "mask index without mask": {7: None},
        "position_ids": {8: whole(np.int32, 2, 5, high=7, seed=3)},
        "position_ids of one": {8: whole(np.int32, 1, 5, high=7, seed=3)},
        "sum": {"outputs": ("y", "m", "t")},
        "epsilon": {"epsilon": 0.3},
    }
    yield from with_more("EmbedLayerNormalization", [*base, mask], {}, more, ("y", "m"))


def products() -> Iterator[Form]:
    x, w = normal(3, 64), whole(np.uint8, 16, 2, 16, high=256)
    sizes = {"K": 64, "N": 16, "bits": 4, "block_size": 32}
    points = np.array([0x78, 0x97] * 8, np.uint8)
    more: dict[str, Any] = {
        "zero points": {3: points},
        "group indices": {4: np.arange(64, dtype=np.int32) // 32},
        "bias": {5: normal(16)},
        **{f"accuracy_level {level}": {"accuracy_level": level} for level in range(5)},
        "8 bits": {1: whole(np.uint8, 16, 2, 32, high=256), "bits": 8},
        "2 bits": {1: whole(np.uint8, 16, 2, 8, high=256), "bits": 2},
        "8 bits, zero points": {1: whole(np.uint8, 16, 2, 32, high=256), "bits": 8, 3: whole(np.uint8, 32, high=256)},
        "weight_prepacked": {"weight_prepacked": 0},
    }
    yield from with_more("MatMulNBits", [x, w, normal(32, scale=0.1)], sizes, more, stored=(1, 2, 3, 4, 5))
    a, b = normal(2, 3, 4, 5), normal(2, 3, 5, 6)
    more = {
        "alpha": {"alpha": 0.3},
        "transA": {0: normal(2, 3, 5, 4), "transA": 1},
        "transB": {1: normal(2, 3, 6, 5), "transB": 1},
        "transBatchA and transA": {0: normal(4, 2, 3, 5), 1: normal(2, 3, 5, 6), "transBatchA": 1},
        "transBatchB": {0: normal(2, 3, 4, 5), 1: normal(5, 2, 3, 6), "transBatchB": 1},
        "transBatchB and transB": {1: normal(6, 2, 3, 5), "transB": 1, "transBatchB": 1},
        "both batches": {0: normal(4, 2, 3, 5), 1: normal(5, 2, 3, 6), "transBatchA": 1, "transBatchB": 1},
        "vector A": {0: normal(5)},
        "vector B": {1: normal(5)},
    }
    yield from with_more("FusedMatMul", [a, b], {}, more)
    y = a @ b
    activations: dict[str, tuple[dict[str, Any], Array]] = {
        "Relu": ({}, np.maximum(y, 0)),
        "LeakyRelu": ({"activation_alpha": 0.2}, np.where(y < 0, 0.2 * y, y)),
        "Elu": ({"activation_alpha": 0.5}, np.where(y < 0, 0.5 * np.expm1(np.minimum(y, 0)), y)),
        "HardSigmoid": ({"activation_alpha": 0.3, "activation_beta": 0.4}, np.clip(0.3 * y + 0.4, 0, 1)),
        "Softmax": ({"activation_axis": -1}, np.exp(y) / np.exp(y).sum(-1, keepdims=True)),
        "Softmax of axis 1": (
            {"activation": "Softmax", "activation_axis": 1},
            np.exp(y) / np.exp(y).sum(1, keepdims=True),
        ),
        "Softplus": ({}, np.log1p(np.exp(y))),
        "Sigmoid": ({}, 1 / (1 + np.exp(-y))),
        "Tanh": ({}, np.tanh(y)),
        "Relu, alpha": ({"activation": "Relu", "alpha": 0.3}, np.maximum(0.3 * y, 0)),
    }
    for what, (own, wanted) in activations.items():
        yield Form("FusedMatMulActivation", what, [a, b], {"activation": what, **own}, expected=wanted)
    q, k = whole(np.uint8, 3, 16), whole(np.int8, 16, 8, low=-50, high=50)
    columns = np.linspace(0.01, 0.05, 8, dtype=np.float32)
    more = {
        "a zero point": {4: np.array(40, np.uint8)},
        "b zero point": {5: np.array(3, np.int8)},
        "both": {4: np.array(40, np.uint8), 5: np.array(3, np.int8)},
        "bias": {6: normal(8)},
        "bias and both": {4: np.array(40, np.uint8), 5: np.array(3, np.int8), 6: normal(8)},
        "columns": {3: columns},
        "columns, points": {3: columns, 5: whole(np.int8, 8, high=9)},
    }
    yield from with_more("MatMulIntegerToFloat", [q, k, f32(0.02), f32(0.03)], {}, more, stored=(1, 3, 5))
    more = {
        "zero point": {3: np.array(3, np.int8)},
        "bias": {4: normal(8)},
        "bias and zero point": {3: np.array(3, np.int8), 4: normal(8)},
        "columns": {2: columns},
        "columns, points": {2: columns, 3: whole(np.int8, 8, high=9)},
    }
    yield from with_more("DynamicQuantizeMatMul", [normal(3, 16), k, f32(0.03)], {}, more, stored=(1, 2, 3))


def elementwise() -> Iterator[Form]:
    x = normal(2, 5, 16)
    yield from with_more("FastGelu", [x], {}, {"bias": {1: normal(16)}})
    yield from with_more("QuickGelu", [x], {}, {"alpha": {"alpha": 0.4}, "alpha 1": {"alpha": 1.0}})
    yield from with_more("Gelu", [x], {}, {})
    yield from with_more("BiasGelu", [x, normal(16)], {}, {})
    image, bias, skip = normal(2, 12, 320), normal(320), normal(2, 12, 320, seed=4)
    yield Form("BiasAdd", "plain", [image, bias, skip], {}, expected=image + bias + skip)
    wide, more_bias = normal(2, 6, 2560), normal(2560)
    left, right = np.split((wide + more_bias).astype(np.float64), 2, -1)
    erf = np.vectorize(__import__("math").erf)
    gated = left * (right * 0.5 * (1 + erf(right / np.sqrt(2))))
    yield Form("BiasSplitGelu", "plain", [wide, more_bias], {}, expected=gated)
    angles = np.outer(np.arange(12), 10.0 ** -np.arange(8))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    heads = normal(2, 5, 48)
    base = [heads, np.tile(np.arange(5, dtype=np.int64), (2, 1)), cos, sin]
    more: dict[str, Any] = {
        "interleaved": {"interleaved": 1},
        "num_heads": {"num_heads": 3},
        "part": {2: cos[:, :4], 3: sin[:, :4], "num_heads": 3, "rotary_embedding_dim": 8},
        "offset": {1: i64(2)},
        "scale": {"scale": 0.5},
        "is_packed_batching": {"is_packed_batching": 1},
        "rank 4": {0: normal(2, 3, 5, 16)},
    }
    yield from with_more("RotaryEmbedding", base, {}, more)


def quantized() -> Iterator[Form]:
    q = whole(np.uint8, 2, 4, 6, 6, high=256)
    zero, other = np.array(100, np.uint8), np.array(20, np.uint8)
    a, b, s, t = q, whole(np.uint8, 2, 4, 6, 6, high=256, seed=1), f32(0.02), f32(0.03)
    for op, out in (("QLinearAdd", f32(0.05)), ("QLinearMul", f32(0.03))):
        more: dict[str, Any] = {
            "broadcast": {3: b[:1, :, :1, :1]},
        }
        yield from with_more(op, [a, s, zero, b, t, other, out, zero], {}, more, stored=(1, 2, 4, 5, 6, 7))
    more = {"without zero points": {2: None, 4: None}, "without the first": {2: None}, "without the last": {4: None}}
    yield from with_more(
        "QLinearSigmoid", [q, s, zero, f32(1 / 256), np.array(0, np.uint8)], {}, more, stored=(1, 2, 3, 4)
    )
    last = np.moveaxis(q, 1, -1).copy()
    more = {
        "channels_last": {0: last, "channels_last": 1},
        "strides": {"strides": [2, 2]},
        "pads": {"pads": [1, 1, 1, 1]},
        "pads that count": {"pads": [1, 1, 1, 1], "count_include_pad": 1},
        "ceil_mode": {"ceil_mode": 1, "kernel_shape": [3, 3], "strides": [2, 2]},
        "SAME_UPPER": {"auto_pad": "SAME_UPPER"},
        "SAME_LOWER": {"auto_pad": "SAME_LOWER"},
        "SAME_UPPER that counts": {"auto_pad": "SAME_UPPER", "count_include_pad": 1},
    }
    base = [q, s, zero, f32(0.025), other]
    yield from with_more("QLinearAveragePool", base, {"kernel_shape": [2, 2]}, more, stored=(1, 2, 3, 4))
    yield from with_more(
        "QLinearGlobalAveragePool", base, {}, {"channels_last": {0: last, "channels_last": 1}}, stored=(1, 2, 3, 4)
    )
    pair = [f32(0.04), other, q, s, zero, b, t, other]
    yield from with_more("QLinearConcat", pair, {"axis": 1}, {"axis -2": {"axis": -2}}, stored=(0, 1, 3, 4, 6, 7))
    x, scales, points = normal(2, 4, 6), np.array([0.1, 0.02, 0.3, 0.05], np.float32), whole(np.uint8, 4, high=200)
    more = {
        "without zero point": {2: None},
        "axis 1": {1: scales, 2: points, "axis": 1},
        "axis -2": {1: scales, 2: points, "axis": -2},
        "axis, no zero point": {1: scales, 2: None, "axis": 1},
    }
    yield from with_more("QuantizeLinear", [x, f32(0.02), zero], {}, more, stored=(1, 2))
    yield from with_more("DequantizeLinear", [whole(np.uint8, 2, 4, 6), f32(0.02), zero], {}, more, stored=(1, 2))


def convolutions() -> Iterator[Form]:
    x, w = normal(2, 4, 6, 7), normal(4, 3, 3, 3)
    more: dict[str, Any] = {
        "without pads": {2: None},
        "bias": {3: normal(3)},
        "bias without pads": {2: None, 3: normal(3)},
        "group": {1: normal(4, 3, 3, 3), "group": 2},
        "strides": {"strides": [2, 2]},
        "output_padding": {"strides": [2, 2], "output_padding": [1, 1]},
        "dilations": {"dilations": [2, 2]},
        "kernel_shape": {"kernel_shape": [3, 3]},
        "SAME_UPPER": {2: None, "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    }
    yield from with_more("ConvTransposeWithDynamicPads", [x, w, i64(1, 0, 1, 1)], {}, more, stored=(1, 2))


def forms() -> Iterator[Form]:
    for kind in (grouped, multi_head, attention, norms, products, elementwise, quantized, convolutions):
        yield from kind()


def model_of(form: Form) -> tuple[onnx.ModelProto, dict[str, Array]]:
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(form.inputs)]
    present = {i: value for i, value in enumerate(form.inputs) if value is not None}
    node = helper.make_node(form.op, names, list(form.outputs), "n", domain="com.microsoft", **form.attributes)
    fed = {f"x{i}": value for i, value in present.items() if i not in form.stored}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in fed.items()
    ]
    constants = [numpy_helper.from_array(value, f"x{i}") for i, value in present.items() if i in form.stored]
    outputs = [onnx.ValueInfoProto(name=name) for name in form.outputs if name]
    graph = helper.make_graph([node], "form", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), fed


def predicted(model: onnx.ModelProto, target: str) -> str:
    """What `check` says of the node: ``cpu``, the codes of its quirks, or ``right``."""
    ours = find_target(target)
    facts = read_facts(Model(ir.from_proto(model)), ours.tables)
    if any(ours.support(node).provider != "dml" for node in facts.all_nodes()):
        return "cpu"
    return ",".join(sorted({hit.quirk.code for hit in find_quirks(facts, ours)})) or "right"


def run(form: Form, hosts: tuple[SessionHost, SessionHost], folder: Path) -> tuple[str, str]:
    """What DirectML does (``right``, ``wrong 0.3``, ``create fails``, ``cpu`` ...), and the words of a failure."""
    model, fed = model_of(form)
    path = folder / "form.onnx"
    path.write_bytes(model.SerializeToString())
    wanted: dict[str, Array] = {"y": form.expected} if form.expected is not None else {}
    options = SessionOptions(optimization="disabled", time_limit=120, threads=1, record_placement=True)
    unknown = ""
    if form.expected is None:
        try:
            with open_on(hosts[0], cpu_host, path, SessionOptions(threads=1, optimization="disabled")) as session:
                wanted = session.run(fed)
        except SessionFailure as failure:
            unknown = " ".join(failure.message.split())[-90:]
    try:
        with open_dml(path, options, hosts[1]) as session:
            where = {node.provider for node in session.placement()}
            found = session.run(fed)
    except SessionFailure as failure:
        return {"load": "create fails", "run": "run fails"}.get(failure.kind, "crash"), " ".join(
            failure.message.split()
        )[-90:]
    if "CPUExecutionProvider" in where:
        return "cpu", ""
    if unknown:
        return "no reference", unknown
    worst = 0.0
    for name, array in wanted.items():
        if found[name].shape != array.shape:
            return "wrong numbers", f"{found[name].shape} instead of {array.shape}"
        off = np.abs(found[name].astype(np.float64) - array.astype(np.float64)).max(initial=0.0)
        close = STEPS if array.dtype.kind in "iu" else CLOSE * max(float(np.abs(array).max(initial=0.0)), 1e-6)
        worst = max(worst, float(off / close))
    return ("right", "") if worst <= 1 else ("wrong numbers", f"{worst:.3g} times the bound")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--release", default="", help="of onnxruntime-directml; empty for the newest installed")
    parser.add_argument("--only", default="", help="an operator")
    arguments = parser.parse_args()
    status = dml_status(arguments.release)
    if not status.available:
        print(f"NOT RUN: {status.reason}", file=sys.stderr)
        return 3
    target = "ort-" + ".".join((arguments.release or "1.30").split(".")[:2])
    print(status.device, target)
    gaps = 0
    with tempfile.TemporaryDirectory() as folder, cpu_host() as cpu, dml_host(arguments.release) as dml:
        for form in forms():
            if arguments.only not in ("", form.op):
                continue
            said = predicted(model_of(form)[0], target)
            did, why = run(form, (cpu, dml), Path(folder))
            gap = (did not in ("right", "no reference", said)) and said in ("right", "cpu")
            gaps += gap
            print(f"{'GAP ' if gap else ''}{form.name}: check {said}, DirectML {did} {why}".rstrip(), flush=True)
    print(f"{gaps} gaps")
    return int(gaps > 0)


if __name__ == "__main__":
    sys.exit(main())
