"""One model of a few nodes for each quirk: what DirectML fails on, or computes wrongly."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

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


CASES: list[Case] = [
    case(
        "reshape-allowzero",
        [node("Reshape", ["x", "s"], ["y"], name="n", allowzero=1)],
        {"x": _X},
        {"y": (F, [2, 60])},
        {"s": integers(2, -1)},
    ),
    case(
        "gemm-without-c",
        [node("Gemm", ["x", "w"], ["t"], name="n"), _ACT],
        {"x": normal(3, 4)},
        {"y": (F, [3, 5])},
        {"w": normal(4, 5)},
    ),
    case(
        "mvn-before-activation",
        [node("MeanVarianceNormalization", ["x"], ["t"], name="n"), _ACT],
        {"x": _X},
        {"y": (F, [2, 3, 4, 5])},
    ),
    case(
        "matmul-rank",
        [node("MatMul", ["x", "z"], ["y"], name="n")],
        {"x": normal(2, 1, 3, 4, 5), "z": normal(2, 2, 3, 5, 6)},
        {"y": (F, [2, 2, 3, 4, 6])},
        exact=False,
    ),
    case(
        "matmul-rank.weights",
        [node("MatMul", ["x", "w"], ["y"], name="n")],
        {"x": normal(2, 1, 3, 4, 5)},
        {"y": (F, [2, 1, 3, 4, 6])},
        {"w": normal(5, 6)},
        exact=False,
    ),
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
        "dequantize-axis-omitted",
        [node("DequantizeLinear", ["x", "s"], ["y"], name="n")],
        {"x": np.arange(-3, 4, dtype=np.int32)},
        {"y": (F, [7])},
        {"s": np.array([0.5], np.float32)},
        13,
    ),
    case(
        "split-empty-output",
        [node("Split", ["x", "s"], ["a", "e", "b"], name="n", axis=1), node("Concat", ["b", "e", "a"], ["y"], axis=1)],
        {"x": _X},
        {"y": (F, [2, 3, 4, 5])},
        {"s": integers(1, 0, 2)},
    ),
    case(
        "convtranspose-same",
        [node("ConvTranspose", ["x", "w"], ["y"], name="n", auto_pad="SAME_UPPER", strides=[2, 2])],
        {"x": normal(1, 2, 5, 6)},
        {"y": (F, [1, 3, 10, 12])},
        {"w": normal(2, 3, 3, 3)},
    ),
    case(
        "convtranspose-same.lower",
        [node("ConvTranspose", ["x", "w"], ["y"], name="n", auto_pad="SAME_LOWER", strides=[2, 3])],
        {"x": normal(1, 2, 5, 6)},
        {"y": (F, [1, 3, 10, 18])},
        {"w": normal(2, 3, 3, 4)},
    ),
    case(
        "convtranspose-output-padding",
        [node("ConvTranspose", ["x", "w"], ["y"], name="n", strides=[2], pads=[1, 1], output_padding=[1], group=4)],
        {"x": normal(1, 4, 9)},
        {"y": (F, [1, 4, 18])},
        {"w": normal(4, 1, 3)},
    ),
    case(
        "convtranspose-output-padding.beyond",
        [node("ConvTranspose", ["x", "w", "b"], ["y"], name="n", strides=[2], output_padding=[1])],
        {"x": normal(1, 4, 9)},
        {"y": (F, [1, 2, 20])},
        {"w": normal(4, 2, 3), "b": normal(2)},
        exact=False,
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
        "resize-aspect",
        [
            node(
                "Resize",
                ["x", "", "", "s"],
                ["y"],
                name="n",
                mode="linear",
                keep_aspect_ratio_policy="not_larger",
                axes=[2, 3],
            )
        ],
        {"x": normal(1, 2, 4, 6)},
        {"y": (F, [1, 2, 8, 12])},
        {"s": integers(8, 20)},
        18,
    ),
    case(
        "optional-without-input",
        [node("OptionalHasElement", [], ["h"], name="n"), node("Not", ["h"], ["y"])],
        {"x": np.array([1.0], np.float32)},
        {"y": (B, [])},
        None,
        18,
        optimized=False,
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
        "quantize-zero-point",
        [node("QuantizeLinear", ["x", "s"], ["q"], name="n"), node("DequantizeLinear", ["q", "s"], ["y"], name="m")],
        {"x": np.abs(_QX)},
        {"y": (F, [2, 3, 4, 5])},
        {"s": np.array(0.1, np.float32)},
        13,
        unfused=True,
    ),
    case(
        "output-before-activation",
        [node("Conv", ["x", "w"], ["t"], name="n"), _ACT],
        {"x": normal(1, 2, 5, 5)},
        {"t": (F, [1, 3, 3, 3]), "y": (F, [1, 3, 3, 3])},
        {"w": normal(3, 2, 3, 3)},
    ),
    case(
        "output-before-activation.add",
        [node("Add", ["x", "z"], ["t"], name="n"), _ACT],
        {"x": normal(3, 4), "z": -normal(3, 4) * 2},
        {"t": (F, [3, 4]), "y": (F, [3, 4])},
    ),
    case(
        "constant-output",
        [node("Add", ["x", "c"], ["y"], name="n")],
        {"x": normal(3, 40)},
        {"y": (F, [3, 40]), "c": (F, [40])},
        {"c": normal(40)},
    ),
    case(
        "constant-output.identity",
        [node("Identity", ["w"], ["c"], name="i"), node("Add", ["x", "c"], ["y"], name="n")],
        {"x": normal(3, 40)},
        {"y": (F, [3, 40]), "c": (F, [40])},
        {"w": normal(40)},
    ),
    case(
        "matmul-vector",
        [node("MatMul", ["x", "z"], ["y"], name="n")],
        {"x": normal(2, 3, 4, 5), "z": normal(5)},
        {"y": (F, [2, 3, 4])},
        exact=False,
    ),
    case(
        "matmul-vector.both",
        [node("MatMul", ["x", "z"], ["y"], name="n")],
        {"x": normal(5), "z": normal(5)},
        {"y": (F, [])},
        opset=12,
        exact=False,
    ),
    case(
        "pad-negative",
        [node("Pad", ["x", "p"], ["y"], name="n")],
        {"x": _X},
        {"y": (F, [2, 4, 3, 5])},
        {"p": integers(0, 1, -1, 0, 0, 0, 0, 0)},
    ),
    case(
        "pad-negative.crop",
        [node("Pad", ["x", "p", "", "a"], ["y"], name="n")],
        {"x": _X},
        {"y": (F, [2, 3, 3, 3])},
        {"p": integers(-1, 0, 0, -2), "a": integers(2, -1)},
        18,
    ),
    case(
        "empty-reduction",
        [node("ReduceProd", ["x"], ["y"], name="n", keepdims=0, axes=[1])],
        {"x": np.zeros((3, 0, 4), np.float32)},
        {"y": (F, [3, 4])},
        None,
        13,
    ),
    case(
        "empty-product",
        [node("MatMul", ["x", "z"], ["t"], name="n"), node("Add", ["t", "b"], ["y"])],
        {"x": np.zeros((3, 0), np.float32), "z": np.zeros((0, 4), np.float32), "b": normal(3, 4)},
        {"y": (F, [3, 4])},
    ),
    case(
        "pool-ceil",
        [node("MaxPool", ["x"], ["y"], name="n", kernel_shape=[2, 2], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1)],
        {"x": normal(1, 2, 5, 5)},
        {"y": (F, [1, 2, None, None])},
    ),
    case(
        "pool-ceil.average",
        [
            node(
                "AveragePool",
                ["x"],
                ["y"],
                name="n",
                kernel_shape=[2, 2],
                strides=[3, 3],
                pads=[1, 1, 1, 1],
                ceil_mode=1,
            )
        ],
        {"x": normal(1, 2, 5, 5)},
        {"y": (F, [1, 2, None, None])},
        exact=False,
    ),
    case(
        "averagepool-ceil",
        [
            node(
                "AveragePool",
                ["x"],
                ["y"],
                name="n",
                kernel_shape=[3, 3],
                strides=[2, 2],
                pads=[1, 1, 1, 1],
                ceil_mode=1,
                count_include_pad=1,
            )
        ],
        {"x": normal(1, 2, 6, 6)},
        {"y": (F, [1, 2, 4, 4])},
        None,
        19,
        exact=False,
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
        "clip-crossed",
        [node("Clip", ["x", "lo", "hi"], ["y"], name="n")],
        {"x": normal(3, 4)},
        {"y": (F, [3, 4])},
        {"lo": np.array(0.5, np.float32), "hi": np.array(-0.5, np.float32)},
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
        "gelu-decomposed",
        [
            node("Div", ["x", "r"], ["d"]),
            node("Erf", ["d"], ["e"], name="n"),
            node("Add", ["e", "one"], ["a"]),
            node("Mul", ["x", "a"], ["m"]),
            node("Mul", ["m", "half"], ["y"]),
        ],
        {"x": normal(3, 40)},
        {"y": (F, [3, 40])},
        {
            "r": np.array(np.sqrt(2), np.float32),
            "one": np.array(1, np.float32),
            "half": np.array(0.5, np.float32),
        },
        20,
        exact=False,  # ONNX Runtime fuses the one and not the other
    ),
    *FORMS,
]
