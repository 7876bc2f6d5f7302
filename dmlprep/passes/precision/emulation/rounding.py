"""Write nodes that round FP32 values to FP16 numbers, and that ONNX Runtime's CPU provider runs at full speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import onnx_ir as ir

from dmlprep.graph.rewriting.builder import GraphBuilder, replace_value
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.precision.fp16 import FP16_MAX
from dmlprep.portable.arrays import Array

Rounding = Literal["nearest", "toward-zero"]
"""How numbers are rounded to FP16. ``nearest``: to nearest even, from 65520 on to infinity (IEEE 754). ``toward-zero``:
digits are cut, and results never exceed 65504 (as DirectML does on a CPU Vulkan driver; measured on 1.24.4)."""

_HALF, _SINGLE = ir.DataType.FLOAT16, ir.DataType.FLOAT


class Builder(GraphBuilder):
    """Creates FP32 nodes for one graph. They are collected, until ``replace`` or ``place_last`` inserts them."""

    graph: ir.Graph

    def __init__(self, graph: ir.Graph, names: Names, opset: int, rounding: Rounding, constants: Constants) -> None:
        super().__init__(graph, names)
        self.opset, self.rounding, self.constants = opset, rounding, constants
        self.new_nodes: list[ir.Node] = []

    def op(
        self, op_type: str, inputs: Sequence[ir.Value | None], *, like: ir.Value | None = None, **attributes: object
    ) -> ir.Value:
        """Create a node with one FP32 output, which gets the shape of ``like``, and return the output."""
        out = self.new_value("emulation_value", ir.TensorType(_SINGLE), like.shape if like is not None else None)
        self.new_nodes.append(self.new_node(op_type, inputs, [out], "emulation", attributes))
        return out

    def reduce(self, op_type: str, value: ir.Value, axes: list[int], *, keepdims: int = 1) -> ir.Value:
        """Create a reduction over ``axes``, in the form that the model's opset needs, and return its output."""
        if self.opset >= (13 if op_type == "ReduceSum" else 18):
            return self.op(op_type, [value, self.ints(axes)], keepdims=keepdims)
        return self.op(op_type, [value], axes=axes, keepdims=keepdims)

    def number(self, value: float) -> ir.Value:
        """A constant FP32 scalar; equal ones are shared."""
        return self.constants.get(np.asarray(value, np.float32))

    def ints(self, values: list[int]) -> ir.Value:
        """A constant int64 vector; equal ones are shared."""
        return self.constants.get(np.asarray(values, np.int64))

    def round(self, value: ir.Value, like: ir.Value | None = None) -> ir.Value:
        """Create nodes that round a value to FP16 numbers, and return the FP32 result, with the shape of ``like``."""
        like = like or value
        if self.rounding == "toward-zero":
            if self.opset >= 11:
                value = self.op("Clip", [value, self.number(-FP16_MAX), self.number(FP16_MAX)], like=like)
            else:
                value = self.op("Clip", [value], like=like, min=-FP16_MAX, max=FP16_MAX)
        near = self._nearest(value, like)
        if self.rounding == "nearest":
            return near
        # Where rounding went away from zero, go back by one step. A step of a normal value r is between |r| / 2048 and
        # |r| / 1024; the step of a subnormal value is 2**-24. A change by less than one step and more than half of one
        # rounds to the next value.
        size, exact = self.op("Abs", [near], like=like), self.op("Abs", [value], like=like)
        step = self.op(
            "Max", [self.op("Mul", [size, self.number(2.0**-11)], like=like), self.number(0.75 * 2.0**-24)], like=like
        )
        back = self.op("Mul", [self.op("Sign", [near], like=like), step], like=like)
        lower = self._nearest(self.op("Sub", [near, back], like=like), like)
        too_far = self.op("Greater", [size, exact], like=like)
        too_far.type = ir.TensorType(ir.DataType.BOOL)
        return self.op("Where", [too_far, lower, near], like=like)

    def _nearest(self, value: ir.Value, like: ir.Value) -> ir.Value:
        half = self.op("Cast", [value], like=like, to=_HALF.value)
        half.type = ir.TensorType(_HALF)
        return self.op("Cast", [half], like=like, to=_SINGLE.value)

    def replace(self, old: ir.Value, new: ir.Value, suffix: str) -> None:
        """Insert the collected nodes after the node that computes ``old``. ``new`` takes over its name and its readers.

        ``old`` is renamed to its name with ``suffix``.
        """
        replace_value(old, new, self.value_name(f"{old.name}_{suffix}"), self.new_nodes)
        self.new_nodes = []

    def place_last(self) -> None:
        """Insert the collected nodes at the end of the graph."""
        self.graph.extend(self.new_nodes)
        self.new_nodes = []


class Constants(GraphBuilder):
    """Small constants of the main graph, each stored once; subgraphs read them from there."""

    def __init__(self, model: ir.Model, names: Names) -> None:
        super().__init__(model.graph, names)
        self.ir_version = model.ir_version
        self._known: dict[object, ir.Value] = {}

    def get(self, array: Array) -> ir.Value:
        """Return the constant with the content of ``array``; it is created on first use."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = self.constant(array, "emulation_constant")
        return self._known[key]
