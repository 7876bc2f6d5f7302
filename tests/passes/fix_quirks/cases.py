"""One model of a few nodes or more for each quirk: what DirectML fails on, or computes wrongly.

The graphs of ``fixtures/cases/fix_quirks``, and those below, which need certain values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto

from dmlprep.directml.quirks import quirks
from tests.cases import FOLDER, read_case, seeded_feeds
from tests.passes.fix_quirks.building import I64, U8, B, Case, F, case, integers, node, normal
from tests.passes.fix_quirks.forms import FORMS

__all__ = ["CASES", "Case"]

_X = normal(2, 3, 4, 5)
_QX = (normal(2, 3, 4, 5) * 10).astype(np.float32)
_SCALE3 = np.array([0.1, 0.2, 0.3], np.float32)
_ZERO3 = np.array([1, 2, 3], np.uint8)
_GELU_X = np.linspace(-4, 4, 120, dtype=np.float32).reshape(3, 40)
_GELU = {
    "three": np.array(3, np.float32),
    "c": np.array(0.044715, np.float32),
    "k": np.array(np.sqrt(2 / np.pi), np.float32),
    "one": np.array(1, np.float32),
    "half": np.array(0.5, np.float32),
}
_ACT = node("Relu", ["t"], ["y"], name="act")


def _nbits(*dims: int) -> Case:
    """MatMulNBits of four bits, on data of these sizes."""
    return case(
        f"nbits-rank.{len(dims)}",
        [node("MatMulNBits", list("xws"), ["y"], name="n", domain="com.microsoft", K=64, N=16, bits=4, block_size=32)],
        {"x": normal(*dims)},
        {"y": (F, [*dims[:-1], 16])},
        {
            "w": np.random.default_rng(1).integers(0, 256, (16, 2, 16), dtype=np.uint8),
            "s": np.full((32,), 0.1, np.float32),
        },
        21,
        exact=False,
    )


def _quantized(
    name: str, dtype: Any, scales: tuple[int, ...], rows: int = 0, *, target: str = "ort-1.24", **attributes: int
) -> Case:
    """A vector, or so many rows, times weights of a DequantizeLinear with so many scales.

    The data is small integers: ONNX Runtime's CPU provider rounds others.
    """
    x = np.random.default_rng(2).integers(-1, 2, (rows, 64) if rows else 64).astype(np.float32)
    return case(
        name,
        [
            node("DequantizeLinear", ["w", "s"], ["d"], **attributes),
            node("MatMul", ["x", "d"], ["y"], name="n"),
        ],
        {"x": x},
        {"y": (F, [*x.shape[:-1], 16])},
        {
            "w": np.random.default_rng(1).integers(0, 8, (64, 16)).astype(dtype),
            "s": np.full(scales, 0.25, np.float32),
        },
        21,
        exact=False,
        target=target,
    )


def _layers(name: str, target: str, dtype: Any, between: str) -> Case:
    """Two layers of quantized weights, with an odd number of blocks and a zero point each."""
    some = np.random.default_rng(4)
    ends = (-8, 8) if dtype == ml_dtypes.int4 else (0, 16)
    constants: dict[str, Any] = {"b": some.integers(-2, 3, 48).astype(np.float32)}
    for layer in "12":
        constants[f"w{layer}"] = some.integers(*ends, (48, 48)).astype(dtype)
        constants[f"s{layer}"] = some.uniform(0.01, 0.1, (3, 48)).astype(np.float32)
        constants[f"z{layer}"] = some.integers(*ends, (3, 48)).astype(dtype)
    if between != "Add":
        del constants["b"]
    return case(
        name,
        [
            node("DequantizeLinear", ["w1", "s1", "z1"], ["d1"], name="n", axis=0, block_size=16),
            node("MatMul", ["x", "d1"], ["p"]),
            node(between, ["p", "b"] if between == "Add" else ["p"], ["q"]),
            node("DequantizeLinear", ["w2", "s2", "z2"], ["d2"], axis=0, block_size=16),
            node("MatMul", ["q", "d2"], ["y"]),
        ],
        {"x": normal(2, 48)},
        {"y": (F, [2, 48])},
        constants,
        21,
        exact=False,
        target=target,
    )


def _constant_of_four_bits(name: str, target: str, scales: tuple[int, ...], **attributes: int) -> Case:
    """A constant and its zero points, both of four bits."""
    some = np.random.default_rng(3)
    return case(
        name,
        [node("DequantizeLinear", ["w", "s", "z"], ["d"], name="n", **attributes), node("Add", ["x", "d"], ["y"])],
        {"x": normal(2, 3, 4)},
        {"y": (F, [2, 3, 4])},
        {
            "w": some.integers(-8, 8, (2, 3, 4)).astype(ml_dtypes.int4),
            "s": some.uniform(0.1, 1, scales).astype(np.float32),
            "z": some.integers(-8, 8, scales).astype(ml_dtypes.int4),
        },
        21,
        target=target,
    )


_WITH_VALUES: list[Case] = [
    case(
        "quantize-axis",
        [node("QuantizeLinear", ["x", "s", "z"], ["y"], name="n", axis=1)],
        {"x": _QX},
        {"y": (U8, [2, 3, 4, 5])},
        {"s": _SCALE3, "z": _ZERO3},
        21,
    ),
    case(
        "quantize-axis.dequantize-0",
        [node("DequantizeLinear", ["x", "s", "z"], ["y"], name="n", axis=0)],
        {"x": np.arange(60, dtype=np.uint8).reshape(3, 4, 5)},
        {"y": (F, [3, 4, 5])},
        {"s": _SCALE3, "z": _ZERO3},
        21,
    ),
    case(
        "quantize-axis-missing",
        [node("DequantizeLinear", ["x", "s"], ["y"], name="n")],
        {"x": np.arange(-3, 4, dtype=np.int32)},
        {"y": (F, [7])},
        {"s": np.array([0.5], np.float32)},
        13,
    ),
    case(
        "matmul-rank.integers",
        [node("MatMulInteger", ["x", "z", "p"], ["y"], name="n")],
        {
            "x": np.arange(48, dtype=np.uint8).reshape(2, 1, 2, 3, 4),
            "z": np.arange(48, dtype=np.uint8).reshape(2, 1, 2, 4, 3),
        },
        {"y": (TensorProto.INT32, [2, 1, 2, 3, 3])},
        {"p": np.array(3, np.uint8)},
    ),
    case(
        "qlinearmatmul-half",
        [node("QLinearMatMul", ["x", "s", "p", "z", "s", "p", "s", "p"], ["y"], name="n")],
        {"x": np.arange(-6, 6, dtype=np.int8).reshape(3, 4), "z": np.arange(-10, 10, dtype=np.int8).reshape(4, 5)},
        {"y": (TensorProto.INT8, [3, 5])},
        {"s": np.array(0.5, np.float16), "p": np.array(0, np.int8)},
        21,
    ),
    case(
        "squeeze-shared",
        [node("Squeeze", ["a", "a"], ["t"], name="n"), node("Add", ["x", "t"], ["y"])],
        {"x": integers(5, 6)},
        {"y": (I64, [2])},
        {"a": integers(0)},
        optimized=False,
        unfused=True,
    ),
    case(
        "logsumexp-range",
        [node("ReduceLogSumExp", ["x"], ["y"], name="n", axes=[1], keepdims=0)],
        {"x": np.array([[99, 100], [-120, -121], [-np.inf, -np.inf], [np.inf, 1]], np.float32)},
        {"y": (F, [4])},
    ),
    case(
        "logsumexp-range.18",
        [node("ReduceLogSumExp", ["x", "axes"], ["y"], name="n")],
        {"x": 200 + normal(3, 4)},
        {"y": (F, [3, 1])},
        {"axes": integers(-1)},
        18,
    ),
    case(
        "cast-bool",
        [node("Cast", ["x"], ["y"], name="n", to=TensorProto.BOOL)],
        {"x": np.array([0.0, 0.5, -0.25, 2.0, -0.0], np.float32)},
        {"y": (B, [5])},
    ),
    case(
        "cast-bool.int64",
        [node("Cast", ["x"], ["y"], name="n", to=TensorProto.BOOL)],
        {"x": integers(0, 1, 2**32, -(2**40))},
        {"y": (B, [4])},
    ),
    case(
        "gelu-tanh",
        [
            node("Pow", ["x", "three"], ["p"]),
            node("Mul", ["p", "c"], ["q"]),
            node("Add", ["x", "q"], ["r"]),
            node("Mul", ["r", "k"], ["s"]),
            node("Tanh", ["s"], ["t"], name="n"),
            node("Add", ["t", "one"], ["u"]),
            node("Mul", ["x", "half"], ["h"]),
            node("Mul", ["h", "u"], ["g"]),
            node("Neg", ["g"], ["y"]),
        ],
        {"x": _GELU_X},
        {"y": (F, [3, 40])},
        _GELU,
        exact=False,
    ),
    case(
        "gelu-tanh.products",
        [
            node("Mul", ["x", "c"], ["a"]),
            node("Mul", ["x", "a"], ["b"]),
            node("Add", ["b", "one"], ["d"]),
            node("Mul", ["x", "k"], ["e"]),
            node("Mul", ["e", "d"], ["s"]),
            node("Tanh", ["s"], ["t"], name="n"),
            node("Add", ["t", "one"], ["u"]),
            node("Mul", ["x", "half"], ["h"]),
            node("Mul", ["h", "u"], ["g"]),
            node("Neg", ["g"], ["y"]),
        ],
        {"x": _GELU_X},
        {"y": (F, [3, 40])},
        {name: _GELU[name] for name in ("c", "k", "one", "half")},
        exact=False,
    ),
    case(
        "fast-gelu",
        [node("FastGelu", ["x", "b"], ["y"], name="n", domain="com.microsoft")],
        {"x": _GELU_X},
        {"y": (F, [3, 40])},
        {"b": normal(40)},
        exact=False,
    ),
    case(
        "four-bit-constant",
        [node("QuantizeLinear", ["x", "s", "z"], ["q"], name="n"), node("DequantizeLinear", ["q", "s", "z"], ["y"])],
        {"x": normal(3, 5)},
        {"y": (F, [3, 5])},
        {"s": np.array(0.25, np.float32), "z": onnx.helper.make_tensor("z", TensorProto.INT4, [], [3])},
        21,
    ),
    case(
        "four-bit-constant.weights",
        [
            node("DequantizeLinear", ["w", "s"], ["a"], name="n"),
            node("Constant", [], ["v"], value=onnx.helper.make_tensor("", TensorProto.INT4, [5], [-8, 7, -1, 0, 3])),
            node("DequantizeLinear", ["v", "t", "u"], ["b"], axis=0),
            node("Mul", ["x", "a"], ["c"]),
            node("Add", ["c", "b"], ["y"]),
        ],
        {"x": normal(3, 5)},
        {"y": (F, [3, 5])},
        {
            "s": np.array(0.25, np.float32),
            "t": np.array([0.5, 1, 2, 1, 0.25], np.float32),
            "u": onnx.helper.make_tensor("u", TensorProto.INT4, [5], [1, -1, 0, 7, -8]),
            "w": onnx.helper.make_tensor("w", TensorProto.UINT4, [5], [15, 0, 7, 8, 1]),
        },
        21,
    ),
    *(_nbits(*dims) for dims in ((64,), (1, 1, 2, 3, 64), (1, 1, 1, 2, 3, 64))),
    _quantized("quantize-blocked.unsigned", ml_dtypes.uint4, (2, 16), 2, target="ort-1.21", axis=0, block_size=32),
    _quantized("quantize-blocked.weights", ml_dtypes.int4, (4, 16), 3, target="ort-1.21", axis=0, block_size=16),
    _quantized("nbits-vector.tensor", np.int8, (), target="ort-1.30"),
    _quantized("nbits-vector.column", np.uint8, (16,), target="ort-1.30", axis=1),
    _quantized("nbits-vector.blocks", ml_dtypes.int4, (2, 16), axis=0, block_size=32),
    _constant_of_four_bits("quantize-axis.four-bits", "ort-1.24", (3,), axis=1),
    _constant_of_four_bits("quantize-blocked.four-bits", "ort-1.30", (2, 3, 2), axis=2, block_size=2),
    _layers("quantize-blocked.layers", "ort-1.30", ml_dtypes.uint4, "Relu"),
    _layers("quantize-blocked.bias", "ort-1.30", ml_dtypes.int4, "Add"),
    _layers("quantize-blocked.early-layers", "ort-1.21", ml_dtypes.int4, "Relu"),
    *FORMS,
]


def _from_file(path: Path) -> Case:
    stem = path.stem.replace("_", "-")
    quirk = max((q.id for q in quirks() if f"{stem}-".startswith(f"{q.id}-")), key=len)
    case = read_case(path)
    model = onnx.parser.parse_model(case.before)
    name = f"{quirk}.{stem.removeprefix(quirk).strip('-')}".rstrip(".")
    since = run if isinstance(run := case.head.get("run", True), str) else ""
    return Case(name, model, seeded_feeds(model), **case.head.get("directml", {}), since=since)


_NAMED = {case.name for case in _WITH_VALUES}
_FILES = [_from_file(path) for path in sorted((FOLDER / "fix_quirks").glob("*.case"))]
CASES: list[Case] = [*_WITH_VALUES, *(case for case in _FILES if case.name not in _NAMED)]
