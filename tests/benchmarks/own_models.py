"""Models of 1,000 to 8,000 nodes for ``own_speed``, as TorchScript exports them: sizes computed in the graph.

python -m tests.benchmarks.own_models FOLDER      # writes FOLDER/NAME.onnx and prints the dimensions to pin
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Size = int | str
"""A number, or the name of a value that holds a size."""


class Builder:
    """A graph in the making; every method that adds a node returns the name of its first output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.ends: tuple[list[onnx.ValueInfoProto], list[onnx.ValueInfoProto]] = [], []
        self._random = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        """Add a node."""
        name = f"/{kind}_{len(self.nodes)}"
        ends = [f"{name}_output_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), ends, name=name, **attributes))
        return ends[0]

    def const(self, value: object) -> str:
        """Add a Constant of whole numbers, or of float32 for floats."""
        array = np.asarray(value)
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        return self.op("Constant", value=numpy_helper.from_array(array))

    def weight(self, *shape: int) -> str:
        """Add an initializer of random numbers."""
        name = f"weight.{len(self.weights)}"
        array = self._random.standard_normal(shape, np.float32) / np.float32(max(shape) ** 0.5)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def input(self, name: str, *dims: Size, kind: int = TensorProto.FLOAT) -> str:
        """Add an input of the model."""
        self.ends[0].append(helper.make_tensor_value_info(name, kind, dims))
        return name

    def output(self, value: str, name: str, rank: int) -> None:
        """Add an output of the model."""
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"/{name}"))
        dims = [f"{name}_{axis}" for axis in range(rank)]
        self.ends[1].append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))

    def size(self, value: str, axis: int) -> str:
        """Add the nodes that read one size."""
        return self.op("Gather", self.op("Shape", value), self.const(axis), axis=0)

    def whole(self, kind: str, size: Size, by: int) -> str:
        """Add Mul, Div or Add of a size and a number."""
        return self.op(kind, size if isinstance(size, str) else self.const(size), self.const(by))

    def sizes(self, *parts: Size) -> str:
        """Add the vector of sizes that a Reshape reads."""
        rows = [self.op("Unsqueeze", p if isinstance(p, str) else self.const(p), self.const([0])) for p in parts]
        return self.op("Concat", *rows, axis=0)

    def reshape(self, value: str, *parts: Size) -> str:
        """Add a Reshape with computed sizes."""
        return self.op("Reshape", value, self.sizes(*parts))

    def linear(self, value: str, wide: int, out: int) -> str:
        """Add MatMul and Add."""
        return self.op("Add", self.weight(out), self.op("MatMul", value, self.weight(wide, out)))

    def norm(self, value: str, wide: int) -> str:
        """Add a layer normalization of nine nodes."""
        centred = self.op("Sub", value, self.op("ReduceMean", value, axes=[-1]))
        spread = self.op("ReduceMean", self.op("Pow", centred, self.const(2.0)), axes=[-1])
        root = self.op("Sqrt", self.op("Add", spread, self.const(1e-5)))
        return self.op("Add", self.op("Mul", self.op("Div", centred, root), self.weight(wide)), self.weight(wide))

    def gelu(self, value: str) -> str:
        """Add the Gelu of five nodes."""
        erf = self.op("Erf", self.op("Div", value, self.const(1.4142135)))
        return self.op("Mul", self.op("Mul", value, self.op("Add", erf, self.const(1.0))), self.const(0.5))

    def conv(self, value: str, wide: int, out: int, *, by: int = 3, stride: int = 1, group: int = 1) -> str:
        """Add a convolution."""
        keys = {"kernel_shape": [by, by], "pads": [by // 2] * 4, "strides": [stride] * 2, "group": group}
        return self.op("Conv", value, self.weight(out, wide // group, by, by), self.weight(out), **keys)

    def heads(self, value: str, heads: int, each: int) -> str:
        """Split the last axis of ``value`` into heads."""
        split = self.reshape(value, self.size(value, 0), self.size(value, 1), heads, each)
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def attend(self, query: str, key: str, value: str, heads: int, each: int, added: Sequence[str] = ()) -> str:
        """Add the attention over heads, and join them; ``added`` goes to the scores."""
        scores = self.op("MatMul", query, self.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self.op("Div", scores, self.const(each**0.5))
        for more in added:
            scores = self.op("Add", scores, more)
        mixed = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
        return self.reshape(mixed, self.size(mixed, 0), self.size(mixed, 1), heads * each)

    def save(self, path: Path) -> int:
        """Write the model; return the number of its nodes."""
        graph = helper.make_graph(self.nodes, path.stem, *self.ends, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        path.write_bytes(model.SerializeToString())
        return len(self.nodes)


def segformer(b: Builder) -> str:
    """Four stages of attention over a reduced sequence, and convolutions between the linear layers."""
    grid, wide = b.input("x", "batch", 3, "height", "width"), 3
    for out, heads, reduced, stride in ((32, 1, 8, 4), (64, 2, 4, 2), (160, 5, 2, 2), (256, 8, 1, 2)):
        grid = b.conv(grid, wide, out, by=7 if stride == 4 else 3, stride=stride)
        high, across, wide = b.size(grid, 2), b.size(grid, 3), out
        rows = b.op("Transpose", b.reshape(grid, b.size(grid, 0), wide, -1), perm=[0, 2, 1])
        rows = b.norm(rows, wide)

        def picture(value: str, high: str = high, across: str = across, deep: int = wide) -> str:
            turned = b.op("Transpose", value, perm=[0, 2, 1])
            return b.reshape(turned, b.size(value, 0), deep, high, across)

        for _ in range(3):
            read = kept = b.norm(rows, wide)
            if reduced > 1:
                small = b.conv(picture(read), wide, wide, by=reduced + 1, stride=reduced)
                kept = b.op("Transpose", b.reshape(small, b.size(small, 0), wide, -1), perm=[0, 2, 1])
                kept = b.norm(kept, wide)
            parts = [b.heads(b.linear(v, wide, wide), heads, wide // heads) for v in (read, kept, kept)]
            rows = b.op("Add", rows, b.linear(b.attend(*parts, heads, wide // heads), wide, wide))
            inner = b.linear(b.norm(rows, wide), wide, 4 * wide)
            mixed = b.conv(picture(inner, deep=4 * wide), 4 * wide, 4 * wide, group=4 * wide)
            inner = b.op("Transpose", b.reshape(mixed, b.size(mixed, 0), 4 * wide, -1), perm=[0, 2, 1])
            rows = b.op("Add", rows, b.linear(b.gelu(inner), 4 * wide, wide))
        grid = picture(b.norm(rows, wide))
    return grid


def swin(b: Builder) -> str:
    """Twelve blocks of shifted windows of 7 by 7, with Slices for the shift and a bias by position."""
    grid = b.conv(b.input("x", "batch", 3, 224, 224), 3, 96, by=3, stride=4)
    grid = b.op("Transpose", grid, perm=[0, 2, 3, 1])
    wide, heads, side = 96, 3, 7

    def roll(value: str, by: int) -> str:
        for axis in (1, 2):
            ends = [b.const([n]) for n in (by, 2**62, 0, by)]
            one = b.op("Slice", value, ends[0], ends[1], b.const([axis]), b.const([1]))
            two = b.op("Slice", value, ends[2], ends[3], b.const([axis]), b.const([1]))
            value = b.op("Concat", one, two, axis=axis)
        return value

    for stage, blocks in enumerate((2, 2, 6, 2)):
        if stage:
            quarters = []
            for high, across in ((0, 0), (1, 0), (0, 1), (1, 1)):
                part = grid
                for axis, first in ((1, high), (2, across)):
                    part = b.op("Slice", part, *(b.const([n]) for n in (first, 2**62, axis, 2)))
                quarters.append(part)
            joined = b.norm(b.op("Concat", *quarters, axis=-1), 4 * wide)
            grid, wide, heads = b.op("MatMul", joined, b.weight(4 * wide, 2 * wide)), 2 * wide, 2 * heads
        for block in range(blocks):
            batch, high, across = (b.size(grid, axis) for axis in range(3))
            read = b.norm(grid, wide)
            if block % 2:
                read = roll(read, 3)
            rows, columns = b.whole("Div", high, side), b.whole("Div", across, side)
            split = b.reshape(read, batch, rows, side, columns, side, wide)
            windows = b.op("Transpose", split, perm=[0, 1, 3, 2, 4, 5])
            windows = b.reshape(windows, -1, side * side, wide)
            parts = [b.heads(b.linear(windows, wide, wide), heads, wide // heads) for _ in range(3)]
            table, where = b.weight((2 * side - 1) ** 2, heads), b.const(np.arange(side**4) % (2 * side - 1) ** 2)
            bias = b.reshape(b.op("Gather", table, where, axis=0), side * side, side * side, heads)
            bias = b.op("Unsqueeze", b.op("Transpose", bias, perm=[2, 0, 1]), b.const([0]))
            mixed = b.linear(b.attend(*parts, heads, wide // heads, [bias]), wide, wide)
            mixed = b.reshape(mixed, batch, rows, columns, side, side, wide)
            mixed = b.reshape(b.op("Transpose", mixed, perm=[0, 1, 3, 2, 4, 5]), batch, high, across, wide)
            grid = b.op("Add", grid, roll(mixed, -3) if block % 2 else mixed)
            grid = b.op("Add", grid, b.linear(b.gelu(b.linear(b.norm(grid, wide), wide, 4 * wide)), 4 * wide, wide))
    return grid


def decoder(b: Builder, layers: int = 24, wide: int = 128) -> str:
    """A decoder with a cache of keys and values, and a mask of computed sizes."""
    rows = b.input("x", "batch", "sequence", wide)
    for layer in range(layers):
        past = [b.input(f"past.{layer}.{part}", "batch", 4, "past", wide // 4) for part in ("key", "value")]
        read = b.norm(rows, wide)
        query, key, value = (b.heads(b.linear(read, wide, wide), 4, wide // 4) for _ in range(3))
        key, value = b.op("Concat", past[0], key, axis=2), b.op("Concat", past[1], value, axis=2)
        b.output(key, f"present.{layer}.key", 4)
        b.output(value, f"present.{layer}.value", 4)
        whole = b.op("Sub", b.size(key, 2), b.size(query, 2))
        steps = b.op("Range", b.const(0), b.size(key, 2), b.const(1))
        shown = b.op("LessOrEqual", steps, whole)
        mask = b.op("Where", shown, b.const(0.0), b.const(-1e4))
        rows = b.op("Add", rows, b.linear(b.attend(query, key, value, 4, wide // 4, [mask]), wide, wide))
        rows = b.op("Add", rows, b.linear(b.gelu(b.linear(b.norm(rows, wide), wide, 4 * wide)), 4 * wide, wide))
    return rows


def convnext(b: Builder) -> str:
    """Blocks of depthwise convolutions with layer normalization between two Transposes."""
    grid, wide = b.input("x", "batch", 3, "height", "width"), 3
    for out, blocks in ((32, 9), (64, 9), (128, 27), (256, 9)):
        grid, wide = b.conv(grid, wide, out, stride=2), out
        for _ in range(blocks):
            rows = b.op("Transpose", b.conv(grid, wide, wide, by=7, group=wide), perm=[0, 2, 3, 1])
            rows = b.linear(b.gelu(b.linear(b.norm(rows, wide), wide, 2 * wide)), 2 * wide, wide)
            grid = b.op("Add", grid, b.op("Transpose", b.op("Mul", rows, b.weight(wide)), perm=[0, 3, 1, 2]))
    return grid


def dense(b: Builder, layers: int = 330) -> str:
    """Each layer reads all layers of its block before it."""
    grid, wide = b.conv(b.input("x", "batch", 3, 16, 16), 3, 16), 16
    parts: list[str] = []
    for layer in range(layers):
        parts = [grid] if layer % 33 == 0 else [*parts, grid]
        joined = b.op("Concat", *parts, axis=1) if len(parts) > 1 else grid
        scaled = b.op("Mul", joined, b.weight(1, wide * len(parts), 1, 1))
        grid = b.conv(b.op("Relu", scaled), wide * len(parts), wide, by=1)
    return grid


def unrolled(b: Builder, steps: int = 420, wide: int = 32) -> str:
    """An LSTM cell written out for each step."""
    rows = b.input("x", "batch", steps, wide)
    hidden, cell = (b.input(name, "batch", wide) for name in ("hidden", "cell"))
    weights = b.weight(wide, 4 * wide), b.weight(wide, 4 * wide), b.weight(4 * wide)
    split = b.const([wide] * 4)
    for step in range(steps):
        read = b.op("Gather", rows, b.const(step), axis=1)
        both = b.op("Add", b.op("MatMul", read, weights[0]), b.op("MatMul", hidden, weights[1]))
        name = b.op("Split", b.op("Add", both, weights[2]), split, outputs=4, axis=-1).removesuffix("0")
        into, forget, out = (b.op("Sigmoid", f"{name}{index}") for index in range(3))
        fresh = b.op("Mul", into, b.op("Tanh", f"{name}3"))
        cell = b.op("Add", b.op("Mul", forget, cell), fresh)
        hidden = b.op("Mul", out, b.op("Tanh", cell))
    return hidden


def pyramid(b: Builder) -> str:
    """A detector: three levels with computed Resizes, and heads of many small convolutions."""
    grid, levels, wide = b.input("x", "batch", 3, "height", "width"), [], 3
    for out in (16, 32, 64, 128):
        grid, wide = b.conv(grid, wide, out, stride=2), out
        for _ in range(24):
            inner = b.conv(grid, wide, wide)
            grid = b.op("Add", grid, b.conv(b.op("Mul", inner, b.op("Sigmoid", inner)), wide, wide))
        levels.append(b.conv(grid, wide, 64, by=1))
    ends = []
    for _ in range(6):
        for index in (2, 1, 0):
            high, across = b.size(levels[index], 2), b.size(levels[index], 3)
            first = b.op("Slice", b.op("Shape", levels[index + 1]), b.const([0]), b.const([2]), b.const([0]))
            sizes = b.op("Concat", first, b.sizes(high, across), axis=0)
            larger = b.op("Resize", levels[index + 1], "", "", sizes, mode="nearest")
            levels[index] = b.op("Relu", b.conv(b.op("Add", levels[index], larger), 64, 64, group=8))
    for level in levels:
        for _ in range(16):
            level = b.op("Clip", b.conv(level, 64, 64), b.const(0.0), b.const(6.0))
        boxes = b.op("Transpose", b.reshape(b.conv(level, 64, 84), b.size(level, 0), 84, -1), perm=[0, 2, 1])
        ends.append(b.op("Concat", boxes, b.op("Sigmoid", boxes), axis=2))
    return b.op("Concat", *ends, axis=1)


def experts(b: Builder, layers: int = 12, wide: int = 64, each: int = 16) -> str:
    """Layers of experts that a router weighs, each expert in nodes of its own."""
    rows = b.input("x", "batch", "sequence", wide)
    for _ in range(layers):
        read = b.norm(rows, wide)
        share = b.op("Softmax", b.linear(read, wide, each), axis=-1)
        for expert in range(each):
            inner = b.gelu(b.linear(read, wide, wide))
            part = b.op("Gather", share, b.const([expert]), axis=-1)
            rows = b.op("Add", rows, b.op("Mul", b.linear(inner, wide, wide), part))
        flat = b.reshape(rows, b.op("Mul", b.size(rows, 0), b.size(rows, 1)), wide)
        rows = b.reshape(flat, b.size(rows, 0), b.size(rows, 1), wide)
    return rows


MODELS: dict[str, tuple[Callable[[Builder], str], int, str]] = {
    "segformer": (segformer, 4, "batch=1,height=128,width=128"),
    "swin": (swin, 4, "batch=1"),
    "decoder": (decoder, 3, "batch=1,sequence=1,past=8"),
    "convnext": (convnext, 4, "batch=1,height=64,width=64"),
    "dense": (dense, 4, "batch=1"),
    "unrolled": (unrolled, 2, "batch=1"),
    "pyramid": (pyramid, 3, "batch=1,height=128,width=128"),
    "experts": (experts, 3, "batch=1,sequence=16"),
}
"""Name of a model -> its builder, the rank of its output, and the dimensions to pin."""


def main() -> None:
    """Write all models."""
    folder = Path(sys.argv[1])
    for name, (build, rank, sizes) in MODELS.items():
        builder = Builder()
        builder.output(build(builder), "y", rank)
        print(f"{folder / name}.onnx:{sizes} ({builder.save(folder / f'{name}.onnx')} nodes)")


if __name__ == "__main__":
    main()
