"""Random small graphs with free dimensions: the way exporters write shape arithmetic."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Builder:
    """A graph being drawn. ``values`` are float tensors [batch, ..., features] with the dims that the graph knows."""

    def __init__(self, draw):
        self.draw = draw
        self.nodes = []
        self.inits = []
        self.count = 0

    def name(self, stem="v"):
        self.count += 1
        return f"{stem}{self.count}"

    def const(self, value, dtype=np.int64):
        name = self.name("c")
        array = np.asarray(value, dtype)
        if self.draw(st.booleans()):
            self.inits.append(numpy_helper.from_array(array, name))
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name)))
        return name

    def op(self, kind, *inputs, **attributes):
        out = self.name()
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=self.name("n"), **attributes))
        return out

    def dim(self, value, axis):
        """The size of one axis as [1] int64, in one of the ways that exporters write it."""
        shape = self.op("Shape", value)
        kind = self.draw(st.integers(0, 2))
        if kind == 0:
            return self.op("Unsqueeze", self.op("Gather", shape, self.const(axis), axis=0), self.const([0]))
        if kind == 1:
            return self.op("Slice", shape, self.const([axis]), self.const([axis + 1]), self.const([0]))
        return self.op("Shape", value, start=axis, end=axis + 1)


@st.composite
def models(draw):
    """A model of inputs x [batch, seq, 4] and mask [batch, seq] (int64), with names or without."""
    b = Builder(draw)
    value = "x"
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(
            st.sampled_from(
                [
                    "relu",
                    "heads",
                    "flat",
                    "expand",
                    "mask",
                    "positions",
                    "concat",
                    "slice",
                    "scale",
                    "if",
                    "tile",
                    "pad",
                ]
            )
        )
        value = getattr(_Blocks, kind)(b, value)
    outputs = [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["n", "m", "k"])]
    named = draw(st.booleans())
    dims = ["batch", "seq"] if named else [None, None]
    graph = helper.make_graph(
        b.nodes,
        "random",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [*dims, 4]),
            helper.make_tensor_value_info("mask", TensorProto.INT64, dims),
        ],
        outputs,
        b.inits,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    return model, named


class _Blocks:
    """Each takes and gives [batch, seq', 4]."""

    @staticmethod
    def relu(b, x):
        return b.op("Relu", x)

    @staticmethod
    def heads(b, x):
        shape = b.op("Concat", b.dim(x, 0), b.dim(x, 1), b.const([2]), b.const([2]), axis=0)
        split = b.op("Transpose", b.op("Reshape", x, shape), perm=[0, 2, 1, 3])
        back = b.op("Concat", b.dim(x, 0), b.const([-1]), b.const([4]), axis=0)
        return b.op("Reshape", b.op("Transpose", split, perm=[0, 2, 1, 3]), back)

    @staticmethod
    def flat(b, x):
        rows = b.op("Mul", b.dim(x, 0), b.dim(x, 1))
        flat = b.op("Reshape", x, b.op("Concat", rows, b.const([4]), axis=0))
        whole = b.op("Concat", b.dim(x, 0), b.dim(x, 1), b.const([4]), axis=0)
        return b.op("Reshape", b.op("Tanh", flat), whole)

    @staticmethod
    def expand(b, x):
        wish = b.op("Concat", b.const([-1]), b.dim(x, 1), b.const([-1]), axis=0)
        shape = b.op("Where", b.op("Equal", wish, b.const(-1)), b.op("Shape", x), wish)
        return b.op("Add", x, b.op("Expand", b.const([[[0.5]]], np.float32), shape))

    @staticmethod
    def mask(b, x):
        ones = b.op("ConstantOfShape", b.op("Shape", x), value=numpy_helper.from_array(np.array([2.0], np.float32)))
        return b.op("Mul", x, ones)

    @staticmethod
    def positions(b, x):
        count = b.op("Squeeze", b.dim(x, 1), b.const([0]))
        numbers = b.op("Range", b.const(0), count, b.const(1))
        even = b.op("Equal", b.op("Mod", numbers, b.const(2)), b.const(0))
        column = b.op("Unsqueeze", b.op("Cast", even, to=TensorProto.FLOAT), b.const([1]))
        return b.op("Add", x, column)

    @staticmethod
    def concat(b, x):
        half = b.op("Div", b.dim(x, 1), b.const([2]))
        part = b.op("Slice", x, b.const([0]), half, b.const([1]))
        return b.op("Concat", part, x, axis=1)

    @staticmethod
    def slice(b, x):
        last = b.op("Sub", b.dim(x, 1), b.const([1]))
        return b.op("Concat", b.op("Slice", x, last, b.const([2**40]), b.const([1])), x, axis=1)

    @staticmethod
    def scale(b, x):
        size = b.op("Cast", b.op("Squeeze", b.dim(x, 2), b.const([0])), to=TensorProto.FLOAT)
        return b.op("Div", x, b.op("Sqrt", size))

    @staticmethod
    def tile(b, x):
        repeats = b.op("Concat", b.const([1]), b.op("Min", b.dim(x, 1), b.const([2])), b.const([1]), axis=0)
        return b.op("Tile", x, repeats)

    @staticmethod
    def pad(b, x):
        odd = b.op("Mod", b.dim(x, 1), b.const([2]))
        pads = b.op("Concat", b.const([0, 0, 0, 0]), odd, b.const([0]), axis=0)
        return b.op("Pad", x, pads)

    @staticmethod
    def branch(b, x, name):
        out = b.name("o")
        node = helper.make_node(name, [x], [out], name=b.name("n"))
        return helper.make_graph([node], b.name("g"), [], [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)])


def _if(b, x):
    single = b.op("Equal", b.op("Squeeze", b.dim(x, 0), b.const([0])), b.const(1))
    return b.op("If", single, then_branch=_Blocks.branch(b, x, "Neg"), else_branch=_Blocks.branch(b, x, "Abs"))


setattr(_Blocks, "if", staticmethod(_if))
