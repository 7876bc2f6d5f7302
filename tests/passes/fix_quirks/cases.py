"""One model of a few nodes for each quirk: what DirectML fails on, or computes wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["CASES", "Case"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A model with one quirk.

    Attributes:
        quirk: its id; the case's name after a dot tells cases of one quirk apart.
        exact: whether the rewritten model must give the very same bits on the CPU.
        optimized: whether the quirk shows at full graph optimisation; else with optimisation off.
        unfused: whether it shows with fused graphs off only.
    """

    name: str
    model: onnx.ModelProto
    feeds: dict[str, Array]
    exact: bool = True
    optimized: bool = True
    unfused: bool = False

    @property
    def quirk(self) -> str:
        return self.name.split(".")[0]


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _normal(*dims: int) -> Array:
    return _rng().standard_normal(dims).astype(np.float32)


def _value(name: str, array: Array | tuple[int, Sequence[Any]]) -> onnx.ValueInfoProto:
    if isinstance(array, tuple):
        return helper.make_tensor_value_info(name, array[0], list(array[1]))
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))


def _model(
    nodes: list[onnx.NodeProto],
    feeds: dict[str, Array],
    outputs: dict[str, tuple[int, Sequence[Any]]],
    constants: dict[str, Array] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "quirk",
        [_value(k, v) for k, v in feeds.items()],
        [_value(k, v) for k, v in outputs.items()],
        [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _i64(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


F, B, I64, U8 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64, TensorProto.UINT8
node = helper.make_node


def _case(
    name: str,
    nodes: list[onnx.NodeProto],
    feeds: dict[str, Array],
    outputs: dict[str, tuple[int, Sequence[Any]]],
    constants: dict[str, Array] | None = None,
    opset: int = 17,
    **more: Any,
) -> Case:
    return Case(name, _model(nodes, feeds, outputs, constants, opset), feeds, **more)


_X = _normal(2, 3, 4, 5)
_QX = (_normal(2, 3, 4, 5) * 10).astype(np.float32)
_SCALE3 = np.array([0.1, 0.2, 0.3], np.float32)
_ZERO3 = np.array([1, 2, 3], np.uint8)
_ACT = node("Relu", ["t"], ["y"], name="act")


CASES: list[Case] = [
    _case(
        "reshape-allowzero",
        [node("Reshape", ["x", "s"], ["y"], name="n", allowzero=1)],
        {"x": _X},
        {"y": (F, [2, 60])},
        {"s": _i64(2, -1)},
    ),
    _case(
        "gemm-without-c",
        [node("Gemm", ["x", "w"], ["t"], name="n"), _ACT],
        {"x": _normal(3, 4)},
        {"y": (F, [3, 5])},
        {"w": _normal(4, 5)},
    ),
    _case(
        "mvn-before-activation",
        [node("MeanVarianceNormalization", ["x"], ["t"], name="n"), _ACT],
        {"x": _X},
        {"y": (F, [2, 3, 4, 5])},
    ),
    _case(
        "matmul-rank",
        [node("MatMul", ["x", "z"], ["y"], name="n")],
        {"x": _normal(2, 1, 3, 4, 5), "z": _normal(2, 2, 3, 5, 6)},
        {"y": (F, [2, 2, 3, 4, 6])},
        exact=False,
    ),
    _case(
        "matmul-rank.weights",
        [node("MatMul", ["x", "w"], ["y"], name="n")],
        {"x": _normal(2, 1, 3, 4, 5)},
        {"y": (F, [2, 1, 3, 4, 6])},
        {"w": _normal(5, 6)},
        exact=False,
    ),
    _case(
        "quantize-axis",
        [node("QuantizeLinear", ["x", "s", "z"], ["y"], name="n", axis=1)],
        {"x": _QX},
        {"y": (U8, [2, 3, 4, 5])},
        {"s": _SCALE3, "z": _ZERO3},
        21,
    ),
    _case(
        "quantize-axis.dequantize-0",
        [node("DequantizeLinear", ["x", "s", "z"], ["y"], name="n", axis=0)],
        {"x": np.arange(60, dtype=np.uint8).reshape(3, 4, 5)},
        {"y": (F, [3, 4, 5])},
        {"s": _SCALE3, "z": _ZERO3},
        21,
    ),
    _case(
        "dequantize-axis-omitted",
        [node("DequantizeLinear", ["x", "s"], ["y"], name="n")],
        {"x": np.arange(-3, 4, dtype=np.int32)},
        {"y": (F, [7])},
        {"s": np.array([0.5], np.float32)},
        13,
    ),
    _case(
        "split-empty-output",
        [node("Split", ["x", "s"], ["a", "e", "b"], name="n", axis=1), node("Concat", ["b", "e", "a"], ["y"], axis=1)],
        {"x": _X},
        {"y": (F, [2, 3, 4, 5])},
        {"s": _i64(1, 0, 2)},
    ),
    _case(
        "convtranspose-same",
        [node("ConvTranspose", ["x", "w"], ["y"], name="n", auto_pad="SAME_UPPER", strides=[2, 2])],
        {"x": _normal(1, 2, 5, 6)},
        {"y": (F, [1, 3, 10, 12])},
        {"w": _normal(2, 3, 3, 3)},
    ),
    _case(
        "convtranspose-same.lower",
        [node("ConvTranspose", ["x", "w"], ["y"], name="n", auto_pad="SAME_LOWER", strides=[2, 3])],
        {"x": _normal(1, 2, 5, 6)},
        {"y": (F, [1, 3, 10, 18])},
        {"w": _normal(2, 3, 3, 4)},
    ),
    _case(
        "convtranspose-output-padding",
        [node("ConvTranspose", ["x", "w"], ["y"], name="n", strides=[2], pads=[1, 1], output_padding=[1], group=4)],
        {"x": _normal(1, 4, 9)},
        {"y": (F, [1, 4, 18])},
        {"w": _normal(4, 1, 3)},
    ),
    _case(
        "convtranspose-output-padding.beyond",
        [node("ConvTranspose", ["x", "w", "b"], ["y"], name="n", strides=[2], output_padding=[1])],
        {"x": _normal(1, 4, 9)},
        {"y": (F, [1, 2, 20])},
        {"w": _normal(4, 2, 3), "b": _normal(2)},
        exact=False,
    ),
    _case(
        "matmul-rank.integers",
        [node("MatMulInteger", ["x", "z", "p"], ["y"], name="n")],
        {
            "x": np.arange(48, dtype=np.uint8).reshape(2, 1, 2, 3, 4),
            "z": np.arange(48, dtype=np.uint8).reshape(2, 1, 2, 4, 3),
        },
        {"y": (TensorProto.INT32, [2, 1, 2, 3, 3])},
        {"p": np.array(3, np.uint8)},
    ),
    _case(
        "qlinearmatmul-half",
        [node("QLinearMatMul", ["x", "s", "p", "z", "s", "p", "s", "p"], ["y"], name="n")],
        {"x": np.arange(-6, 6, dtype=np.int8).reshape(3, 4), "z": np.arange(-10, 10, dtype=np.int8).reshape(4, 5)},
        {"y": (TensorProto.INT8, [3, 5])},
        {"s": np.array(0.5, np.float16), "p": np.array(0, np.int8)},
        21,
    ),
    _case(
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
        {"x": _normal(1, 2, 4, 6)},
        {"y": (F, [1, 2, 8, 12])},
        {"s": _i64(8, 20)},
        18,
    ),
    _case(
        "optional-without-input",
        [node("OptionalHasElement", [], ["h"], name="n"), node("Not", ["h"], ["y"])],
        {"x": np.array([1.0], np.float32)},
        {"y": (B, [])},
        None,
        18,
        optimized=False,
    ),
    _case(
        "squeeze-shared",
        [node("Squeeze", ["a", "a"], ["t"], name="n"), node("Add", ["x", "t"], ["y"])],
        {"x": _i64(5, 6)},
        {"y": (I64, [2])},
        {"a": _i64(0)},
        optimized=False,
        unfused=True,
    ),
    _case(
        "quantize-zero-point",
        [node("QuantizeLinear", ["x", "s"], ["q"], name="n"), node("DequantizeLinear", ["q", "s"], ["y"], name="m")],
        {"x": np.abs(_QX)},
        {"y": (F, [2, 3, 4, 5])},
        {"s": np.array(0.1, np.float32)},
        13,
        unfused=True,
    ),
    _case(
        "output-before-activation",
        [node("Conv", ["x", "w"], ["t"], name="n"), _ACT],
        {"x": _normal(1, 2, 5, 5)},
        {"t": (F, [1, 3, 3, 3]), "y": (F, [1, 3, 3, 3])},
        {"w": _normal(3, 2, 3, 3)},
    ),
    _case(
        "output-before-activation.add",
        [node("Add", ["x", "z"], ["t"], name="n"), _ACT],
        {"x": _normal(3, 4), "z": -_normal(3, 4) * 2},
        {"t": (F, [3, 4]), "y": (F, [3, 4])},
    ),
    _case(
        "constant-output",
        [node("Add", ["x", "c"], ["y"], name="n")],
        {"x": _normal(3, 40)},
        {"y": (F, [3, 40]), "c": (F, [40])},
        {"c": _normal(40)},
    ),
    _case(
        "constant-output.identity",
        [node("Identity", ["w"], ["c"], name="i"), node("Add", ["x", "c"], ["y"], name="n")],
        {"x": _normal(3, 40)},
        {"y": (F, [3, 40]), "c": (F, [40])},
        {"w": _normal(40)},
    ),
    _case(
        "matmul-vector",
        [node("MatMul", ["x", "z"], ["y"], name="n")],
        {"x": _normal(2, 3, 4, 5), "z": _normal(5)},
        {"y": (F, [2, 3, 4])},
        exact=False,
    ),
    _case(
        "matmul-vector.both",
        [node("MatMul", ["x", "z"], ["y"], name="n")],
        {"x": _normal(5), "z": _normal(5)},
        {"y": (F, [])},
        opset=12,
        exact=False,
    ),
    _case(
        "pad-negative",
        [node("Pad", ["x", "p"], ["y"], name="n")],
        {"x": _X},
        {"y": (F, [2, 4, 3, 5])},
        {"p": _i64(0, 1, -1, 0, 0, 0, 0, 0)},
    ),
    _case(
        "pad-negative.crop",
        [node("Pad", ["x", "p", "", "a"], ["y"], name="n")],
        {"x": _X},
        {"y": (F, [2, 3, 3, 3])},
        {"p": _i64(-1, 0, 0, -2), "a": _i64(2, -1)},
        18,
    ),
    _case(
        "empty-reduction",
        [node("ReduceProd", ["x"], ["y"], name="n", keepdims=0, axes=[1])],
        {"x": np.zeros((3, 0, 4), np.float32)},
        {"y": (F, [3, 4])},
        None,
        13,
    ),
    _case(
        "empty-product",
        [node("MatMul", ["x", "z"], ["t"], name="n"), node("Add", ["t", "b"], ["y"])],
        {"x": np.zeros((3, 0), np.float32), "z": np.zeros((0, 4), np.float32), "b": _normal(3, 4)},
        {"y": (F, [3, 4])},
    ),
    _case(
        "pool-ceil",
        [node("MaxPool", ["x"], ["y"], name="n", kernel_shape=[2, 2], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1)],
        {"x": _normal(1, 2, 5, 5)},
        {"y": (F, [1, 2, None, None])},
    ),
    _case(
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
        {"x": _normal(1, 2, 5, 5)},
        {"y": (F, [1, 2, None, None])},
        exact=False,
    ),
    _case(
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
        {"x": _normal(1, 2, 6, 6)},
        {"y": (F, [1, 2, 4, 4])},
        None,
        19,
        exact=False,
    ),
    _case(
        "cast-bool",
        [node("Cast", ["x"], ["y"], name="n", to=TensorProto.BOOL)],
        {"x": np.array([0.0, 0.5, -0.25, 2.0, -0.0], np.float32)},
        {"y": (B, [5])},
    ),
    _case(
        "cast-bool.int64",
        [node("Cast", ["x"], ["y"], name="n", to=TensorProto.BOOL)],
        {"x": _i64(0, 1, 2**32, -(2**40))},
        {"y": (B, [4])},
    ),
    _case(
        "clip-crossed",
        [node("Clip", ["x", "lo", "hi"], ["y"], name="n")],
        {"x": _normal(3, 4)},
        {"y": (F, [3, 4])},
        {"lo": np.array(0.5, np.float32), "hi": np.array(-0.5, np.float32)},
    ),
    _case(
        "gelu-decomposed",
        [
            node("Div", ["x", "r"], ["d"]),
            node("Erf", ["d"], ["e"], name="n"),
            node("Add", ["e", "one"], ["a"]),
            node("Mul", ["x", "a"], ["m"]),
            node("Mul", ["m", "half"], ["y"]),
        ],
        {"x": _normal(3, 40)},
        {"y": (F, [3, 40])},
        {
            "r": np.array(np.sqrt(2), np.float32),
            "one": np.array(1, np.float32),
            "half": np.array(0.5, np.float32),
        },
        20,
        exact=False,  # ONNX Runtime fuses the one and not the other
    ),
]
