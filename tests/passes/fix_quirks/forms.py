"""Models with quirks whose equal form is a graph of its own: quantization, Einsum, Resize, values of high rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from tests.passes.fix_quirks.building import U8, Array, B, Case, F, case, integers, node, normal

__all__ = ["FORMS"]

_I8 = TensorProto.INT8


def _steps(op: str, kind: type, clip: list[onnx.NodeProto], zero: int, more: int = 0, **attributes: Any) -> Case:
    """DequantizeLinear -> op -> clip -> QuantizeLinear; ``more`` further operands of the same shape."""
    operands = ["d", *(f"d{i}" for i in range(more))]
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["d"], name="dq")]
    nodes += [node("DequantizeLinear", [f"w{i}", "s", "z"], [f"d{i}"], name=f"dq{i}") for i in range(more)]
    nodes += [node(op, operands, ["t"], name="n", **attributes), *clip]
    nodes.append(node("QuantizeLinear", ["a", "o", "p"], ["y"], name="q"))
    data = np.arange(-100, 92, dtype=np.int64).astype(kind).reshape(1, 3, 8, 8)
    dtype = U8 if kind is np.uint8 else _I8
    sizes = {"Concat": [1, 6, 8, 8], "AveragePool": [1, 3, 7, 7], "GlobalAveragePool": [1, 3, 1, 1]}
    constants: dict[str, Array] = {
        "s": np.array(0.05, np.float32),
        "o": np.array(0.043, np.float32),
        "z": np.array(3, kind),
        "p": np.array(zero, kind),
    }
    constants |= {f"w{i}": data[..., ::-1].copy() for i in range(more)}
    if any(c.op_type == "Clip" for c in clip):
        constants |= {"lo": np.array(0, np.float32), "hi": np.array(13, np.float32)}
    old = op in ("Softmax", "LeakyRelu")
    return case(
        f"{'quantized-unary' if old else 'redundant-clip'}.{op}-{kind.__name__}-{clip[0].op_type}",
        nodes,
        {"x": data},
        {"y": (dtype, sizes.get(op, [1, 3, 8, 8]))},
        constants,
        13,
        exact=False,
        target="ort-1.23" if old else "ort-1.24",
    )


_RELU = [node("Relu", ["t"], ["a"], name="act")]
_CLIP = [node("Clip", ["t", "lo", "hi"], ["a"], name="act")]


def _convolution(name: str, weights: bool, bias: str) -> Case:
    """A quantized convolution; ``weights`` dequantized or FP32; ``bias`` dequantized (``q``), FP32 (``f``) or none."""
    rng = np.random.default_rng(4)
    packed = rng.integers(-100, 100, (4, 3, 3, 3)).astype(np.int8)
    packed[:, 0, 0, 0] = 127  # FP32 weights lose nothing where ONNX Runtime quantizes them itself
    scales = np.linspace(0.004, 0.006, 4).astype(np.float32)
    constants: dict[str, Array] = {
        "s": np.array(0.03, np.float32),
        "z": np.array(128, np.uint8),
        "p": np.array(0, np.uint8),
    }
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["d"], name="dq")]
    if weights:
        constants |= {"wq": packed, "ws": scales, "wz": np.zeros(4, np.int8)}
        nodes.append(node("DequantizeLinear", ["wq", "ws", "wz"], ["w"], name="dqw", axis=0))
    else:
        constants["w"] = (packed * 0.005).astype(np.float32)
    if bias == "q":
        constants |= {
            "bq": rng.integers(-500, 500, 4).astype(np.int32),
            "bs": (scales * np.float32(0.03)).astype(np.float32),
            "bz": np.zeros(4, np.int32),
        }
        nodes.append(node("DequantizeLinear", ["bq", "bs", "bz"], ["b"], name="dqb", axis=0))
    elif bias:
        constants["b"] = np.array([0.1, -0.2, 0.3, 0.05], np.float32)
    operands = ["d", "w", *(["b"] if bias else [])]
    nodes += [
        node("Conv", operands, ["t"], name="n", pads=[1, 1, 1, 1]),
        *_RELU,
        node("QuantizeLinear", ["a", "s", "p"], ["q"], name="q"),
        node("DequantizeLinear", ["q", "s", "p"], ["y"], name="out"),
    ]
    data = rng.integers(0, 255, (1, 3, 8, 8)).astype(np.uint8)
    return case(f"redundant-clip.{name}", nodes, {"x": data}, {"y": (F, [1, 4, 8, 8])}, constants, 13, exact=False)


def _resize(name: str, shape: tuple[int, ...], result: list[int], roi: list[float] | None = None, **more: Any) -> Case:
    constants: dict[str, Array] = {"s": integers(*(result[-2:] if "axes" in more else result))}
    if roi:
        constants["r"] = np.array(roi, np.float32)
    made = node("Resize", ["x", "r" if roi else "", "", "s"], ["y"], name="n", **more)
    exact = more["mode"] == "nearest"
    return case(name, [made], {"x": normal(*shape)}, {"y": (F, result)}, constants, 19, exact=exact)


def _einsum(name: str, equation: str, shapes: list[tuple[int, ...]], result: list[int]) -> Case:
    feeds = {f"x{i}": normal(*shape) for i, shape in enumerate(shapes)}
    made = node("Einsum", list(feeds), ["y"], name="n", equation=equation)
    return case(f"einsum-labels.{name}", [made], feeds, {"y": (F, result)}, exact=False)


_DYNAMIC = node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="n")
_BETWEEN = np.array([0, 2, -3, -2.5, 1.34, 0.5], np.float32)  # -2.5 lies between two steps
_DYNAMIC_OUTPUTS = {"q": (U8, [6]), "s": (F, []), "z": (U8, [])}
_CROP = [0.0, 0.0, 0.1, 0.2, 1.0, 1.0, 0.9, 1.3]


def _gate(name: str, parts: int, part: int, gate: int, axis: int, opset: int, swapped: bool = False) -> Case:
    """part * sigmoid(gate), of a Split into equal parts; the last one is an output as well, through an Identity."""
    sizes = [2, 12, 6]
    split = {"num_outputs": parts} if opset >= 18 else {}
    nodes = [
        node("Split", ["x"], [f"s{i}" for i in range(parts)], name="split", axis=axis, **split),
        node("Identity", [f"s{part}"], ["a"], name="same"),
        node("Sigmoid", [f"s{gate}"], ["t"], name="sigmoid"),
        node("Mul", ["t", "a"] if swapped else ["a", "t"], ["y"], name="n"),
        node("Relu", [f"s{parts - 1}"], ["r"], name="relu"),
    ]
    half = [size // parts if i == axis % 3 else size for i, size in enumerate(sizes)]
    return case(name, nodes, {"x": normal(*sizes)}, {"y": (F, half), "r": (F, half)}, None, opset)


def _elements(name: str, op: str, data: tuple[int, ...], indices: tuple[int, ...], axis: int, opset: int = 17) -> Case:
    """Every place of a line is named once, so that no two updates meet."""
    line = np.random.default_rng(1).permutation(data[axis])[: indices[axis]] - data[axis] // 2
    places = np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(data))]), indices)
    feeds = {"x": normal(*data), "i": places.astype(np.int64)}
    if op == "ScatterElements":
        feeds["u"] = normal(*indices) + np.float32(9)
    shape = data if op == "ScatterElements" else indices
    return case(name, [node(op, list(feeds), ["y"], name="n", axis=axis)], feeds, {"y": (F, list(shape))}, None, opset)


FORMS: list[Case] = [
    _gate("split-gate", 2, 0, 1, 1, 17),
    _gate("split-gate.three", 3, 1, 0, -1, 13, swapped=True),
    _gate("split-gate.newer", 2, 1, 0, 0, 18),
    _gate("split-gate.older", 2, 0, 1, -2, 11),
    _elements("gather-narrow", "GatherElements", (4, 6), (3, 5), 1),
    _elements("gather-narrow.two", "GatherElements", (4, 5, 6), (2, 5, 5), 1, 11),
    _elements("scatter-narrow", "ScatterElements", (6, 5), (4, 3), 0),
    _elements("scatter-narrow.three", "ScatterElements", (4, 5, 6, 3), (2, 5, 5, 2), 1, 13),
    *(_steps(op, np.uint8, _RELU, 0) for op in ("GlobalAveragePool", "Sigmoid", "LeakyRelu")),
    _steps("AveragePool", np.uint8, _RELU, 0, kernel_shape=[2, 2]),
    _steps("Softmax", np.uint8, _RELU, 0, axis=-1),
    *(_steps(op, np.uint8, _RELU, 0, 1) for op in ("Add", "MatMul")),
    _steps("Concat", np.uint8, _RELU, 0, 1, axis=1),
    _steps("Add", np.int8, _RELU, -128, 1),
    _steps("Add", np.uint8, _CLIP, 0, 1),
    _convolution("conv", True, "q"),
    _convolution("conv-without-bias", True, ""),
    _convolution("conv-bias", True, "f"),
    _convolution("conv-weights", False, "f"),
    case("dynamic-quantize", [_DYNAMIC], {"x": _BETWEEN}, _DYNAMIC_OUTPUTS),
    case(
        "dynamic-quantize.opset-21",
        [_DYNAMIC],
        {"x": _BETWEEN[::-1].copy()},
        _DYNAMIC_OUTPUTS,
        None,
        21,
    ),
    _einsum("vector", "abcde,e->abcd", [(2, 3, 2, 4, 3), (3,)], [2, 3, 2, 4]),
    _einsum("summed", "bfedc,d->bcde", [(2, 3, 4, 2, 3), (2,)], [2, 3, 2, 4]),
    _einsum("batch", "deac,gace->dcae", [(2, 3, 4, 2), (5, 4, 2, 3)], [2, 2, 4, 3]),
    _resize(
        "resize-forms.crop",
        (1, 2, 5, 7),
        [1, 2, 8, 11],
        _CROP,
        mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
    ),
    _resize("resize-forms.antialias", (1, 2, 9, 8), [1, 2, 4, 3], mode="linear", antialias=1),
    _resize("resize-forms.antialias-axes", (2, 3, 9, 8), [2, 3, 4, 16], mode="linear", antialias=1, axes=[2, 3]),
    _resize(
        "resize-forms.one",
        (1, 2, 5, 8),
        [1, 2, 3, 1],
        mode="linear",
        coordinate_transformation_mode="pytorch_half_pixel",
    ),
    _resize(
        "resize-forms.one-nearest",
        (1, 2, 5, 8),
        [1, 2, 3, 1],
        mode="nearest",
        coordinate_transformation_mode="pytorch_half_pixel",
    ),
    _resize(
        "resize-forms.floor",
        (1, 1, 8, 8),
        [1, 1, 3, 5],
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="align_corners",
    ),
    _resize(
        "resize-forms.ceil",
        (1, 1, 8, 8),
        [1, 1, 3, 9],
        mode="nearest",
        nearest_mode="round_prefer_ceil",
        coordinate_transformation_mode="align_corners",
    ),
    _resize(
        "resize-crop-axes",
        (1, 2, 5, 7),
        [1, 2, 8, 11],
        [0.1, 0.2, 0.9, 1.3],
        mode="linear",
        axes=[2, 3],
        coordinate_transformation_mode="tf_crop_and_resize",
    ),
    _resize(
        "resize-crop-axes.nearest",
        (1, 2, 5, 7),
        [1, 2, 8, 11],
        [0.1, 0.2, 0.9, 0.8],
        mode="nearest",
        axes=[2, 3],
        coordinate_transformation_mode="tf_crop_and_resize",
    ),
    case(
        "empty-output",
        [node("Relu", ["x"], ["y"], name="act"), node("Slice", ["x", "b", "b", "a"], ["p"], name="n")],
        {"x": normal(2, 4, 8)},
        {"y": (F, [2, 4, 8]), "p": (F, [2, 4, 0])},
        {"b": integers(8), "a": integers(2)},
    ),
    case(
        "empty-output.read",
        [
            node("Slice", ["x", "b", "b", "a"], ["p"], name="n"),
            node("Concat", ["x", "p"], ["c"], name="join", axis=2),
            node("Relu", ["c"], ["y"], name="act"),
        ],
        {"x": normal(2, 4, 8)},
        {"p": (F, [2, 4, 0]), "y": (F, [2, 4, 8])},
        {"b": integers(8), "a": integers(2)},
    ),
    case(
        "rank",
        [
            node("Reshape", ["x", "s"], ["a"], name="n"),
            node("Transpose", ["a"], ["b"], name="turn", perm=[0, 2, 4, 6, 8, 1, 3, 5, 7]),
            node("Reshape", ["b", "t"], ["y"], name="back"),
        ],
        {"x": normal(2, 48, 4)},
        {"y": (F, [48, 8])},
        {"s": integers(2, 2, 2, 3, 2, 2, 1, 2, 2), "t": integers(48, 8)},
    ),
    case(
        "rank.window",
        [
            node("Reshape", ["x", "s"], ["a"], name="n"),
            node("Reshape", ["z", "r"], ["c"], name="other"),
            node("Add", ["a", "c"], ["d"], name="add"),
            node("Mul", ["d", "w"], ["e"], name="mul"),
            node("Relu", ["e"], ["f"], name="relu"),
            node("Transpose", ["f"], ["g"], name="turn", perm=[0, 1, 5, 3, 4, 2, 6, 8, 7]),
            node("Greater", ["g", "half"], ["h"], name="compare"),
            node("Cast", ["h"], ["i"], name="cast", to=TensorProto.BOOL),
            node("Reshape", ["g", "t"], ["y"], name="back"),
            node("Reshape", ["i", "t"], ["m"], name="mask"),
        ],
        {"x": normal(4, 6, 24), "z": normal(4, 1, 24)},
        {"y": (F, [24, 24]), "m": (B, [24, 24])},
        {
            "s": integers(2, 2, 3, 2, 2, 3, 1, 2, 2),
            "r": integers(2, 2, 1, 1, 2, 3, 1, 2, 2),
            "t": integers(24, 24),
            "w": normal(3, 1, 1, 2),
            "half": np.array(0.5, np.float32),
        },
    ),
]
