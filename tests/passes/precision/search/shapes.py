"""Models of the shape of BERT and ConvNeXt with seeded weights, built in code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from dmlprep.graph.model import Model

__all__ = ["bert", "convnext"]


class _Net:
    """A graph under construction; every layer's nodes are named after it."""

    def __init__(self, name: str, opset: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = ir.Graph([], [], nodes=[], opset_imports={"": opset}, name=name)
        self.count = 0

    def weight(self, *shape: int, scale: float | None = None, like: float = 0.0) -> ir.Value:
        fan = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        spread = scale if scale is not None else fan**-0.5
        array = (like + spread * self.rng.standard_normal(shape)).astype(np.float32)
        return self._initializer(array)

    def constant(self, values: object, dtype: Any = np.float32) -> ir.Value:
        return self._initializer(np.asarray(values, dtype))

    def _initializer(self, array: np.ndarray[Any, Any]) -> ir.Value:
        self.count += 1
        tensor = ir.Tensor(array, name=f"w{self.count}")
        value = ir.Value(
            name=tensor.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor
        )
        self.graph.register_initializer(value)
        return value

    def input(self, name: str, shape: Sequence[int]) -> ir.Value:
        value = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(shape))
        self.graph.inputs.append(value)
        return value

    def op(self, op_type: str, inputs: list[ir.Value], where: str, **attributes: int | list[int]) -> ir.Value:
        self.count += 1
        out = ir.Value(name=f"v{self.count}", type=ir.TensorType(ir.DataType.FLOAT))
        attrs = [ir.AttrInt64(k, v) if isinstance(v, int) else ir.AttrInt64s(k, v) for k, v in attributes.items()]
        self.graph.append(ir.Node("", op_type, inputs, attrs, outputs=[out], name=f"{where}/{op_type}_{self.count}"))
        return out

    def norm(self, value: ir.Value, size: int, where: str) -> ir.Value:
        """A LayerNormalization over the last axis, written out as exporters below opset 17 do."""
        mean = self.op("ReduceMean", [value], where, axes=[-1])
        middle = self.op("Sub", [value, mean], where)
        square = self.op("Pow", [middle, self.constant(2.0)], where)
        variance = self.op("ReduceMean", [square], where, axes=[-1])
        root = self.op("Sqrt", [self.op("Add", [variance, self.constant(1e-5)], where)], where)
        scaled = self.op("Mul", [self.op("Div", [middle, root], where), self.weight(size, scale=0.05, like=1)], where)
        return self.op("Add", [scaled, self.weight(size, scale=0.05)], where)

    def gelu(self, value: ir.Value, where: str) -> ir.Value:
        erf = self.op("Erf", [self.op("Div", [value, self.constant(2**0.5)], where)], where)
        return self.op(
            "Mul",
            [value, self.op("Mul", [self.op("Add", [erf, self.constant(1.0)], where), self.constant(0.5)], where)],
            where,
        )

    def dense(self, value: ir.Value, into: int, out: int, where: str) -> ir.Value:
        product = self.op("MatMul", [value, self.weight(into, out)], where)
        return self.op("Add", [product, self.weight(out, scale=0.02)], where)

    def model(self, output: ir.Value, shape: Sequence[int]) -> Model:
        output.shape = ir.Shape(shape)
        output.name = "y"
        self.graph.outputs.append(output)
        return Model(ir.Model(self.graph, ir_version=8))


def bert(layers: int = 12, hidden: int = 768, heads: int = 12, length: int = 64, seed: int = 0) -> Model:
    """An encoder like BERT's, from embeddings [2, length, hidden] on; norms written out."""
    net = _Net("bert", 14, seed)
    value = net.input("x", [2, length, hidden])
    size = hidden // heads
    split, join = net.constant([0, 0, heads, size], np.int64), net.constant([0, 0, hidden], np.int64)
    for i in range(layers):
        at = f"layer{i}/attention"
        parts = [
            net.op(
                "Transpose",
                [net.op("Reshape", [net.dense(value, hidden, hidden, f"{at}/{p}"), split], at)],
                at,
                perm=[0, 2, 3, 1] if p == "key" else [0, 2, 1, 3],
            )
            for p in ("query", "key", "value")
        ]
        scores = net.op("Div", [net.op("MatMul", parts[:2], at), net.constant(size**0.5)], at)
        mixed = net.op("MatMul", [net.op("Softmax", [scores], at, axis=-1), parts[2]], at)
        mixed = net.op("Reshape", [net.op("Transpose", [mixed], at, perm=[0, 2, 1, 3]), join], at)
        value = net.norm(net.op("Add", [net.dense(mixed, hidden, hidden, at), value], at), hidden, f"{at}/norm")
        at = f"layer{i}/mlp"
        inner = net.gelu(net.dense(value, hidden, 4 * hidden, at), at)
        value = net.norm(net.op("Add", [net.dense(inner, 4 * hidden, hidden, at), value], at), hidden, f"{at}/norm")
    return net.model(value, [2, length, hidden])


def convnext(depths: Sequence[int] = (3, 3, 9, 3), width: int = 96, side: int = 64, seed: int = 0) -> Model:
    """A ConvNeXt-like image network on [1, 3, side, side]."""
    net = _Net("convnext", 14, seed)
    value = net.op(
        "Conv",
        [net.input("x", [1, 3, side, side]), net.weight(width, 3, 4, 4)],
        "stem",
        strides=[4, 4],
        kernel_shape=[4, 4],
    )
    for stage, depth in enumerate(depths):
        if stage:
            at = f"stage{stage}/down"
            value = net.op("Conv", [value, net.weight(2 * width, width, 2, 2)], at, strides=[2, 2], kernel_shape=[2, 2])
            width *= 2
        for block in range(depth):
            at = f"stage{stage}/block{block}"
            inner = net.op(
                "Conv", [value, net.weight(width, 1, 7, 7)], at, group=width, kernel_shape=[7, 7], pads=[3, 3, 3, 3]
            )
            inner = net.norm(net.op("Transpose", [inner], at, perm=[0, 2, 3, 1]), width, f"{at}/norm")
            inner = net.dense(net.gelu(net.dense(inner, width, 4 * width, at), at), 4 * width, width, at)
            inner = net.op("Mul", [inner, net.weight(width, scale=0.1, like=0.5)], at)
            value = net.op("Add", [value, net.op("Transpose", [inner], at, perm=[0, 3, 1, 2])], at)
    pooled = net.op("Flatten", [net.op("GlobalAveragePool", [value], "head")], "head")
    return net.model(net.dense(net.norm(pooled, width, "head/norm"), width, 1000, "head"), [1, 1000])
