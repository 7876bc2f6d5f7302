"""How much larger than its operand the result of a product by a constant can be, whatever the operand is."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from dmlprep.graph.analysis.operators import MOVES
from dmlprep.passes.precision.fp16 import FP16_MAX, Loss, pieces
from dmlprep.passes.precision.signature import operators
from dmlprep.passes.precision.view import View, scalar
from dmlprep.portable.arrays import Array

HOMOGENEOUS = (MOVES - {"Concat", "Split", "Dropout"}) | operators(
    "Abs AveragePool GlobalAveragePool GlobalMaxPool MaxPool Neg ReduceMax ReduceMean ReduceMin Relu"
)
"""Operators of one operand whose result is scaled as the operand is, by any positive factor, and is no larger."""

_LIMITED = frozenset({"Softmax", "Sigmoid", "HardSigmoid", "Tanh", "Sin", "Cos", "Erf", "Softsign"})
"""Operators whose result is at most 1 in magnitude."""


_Column = Callable[[Array], Array]
"""Flat indices of elements -> the sum that each is part of."""
_FARTHEST = 16  # nodes between an operand and what bounds it


def allowed_gain(view: View, operand: ir.Value) -> float:
    """The largest gain with which no operand makes a result beyond half of FP16's range."""
    return FP16_MAX / 2 / min(FP16_MAX, ceiling(view, operand))


def ceiling(view: View, value: ir.Value) -> float:
    """A bound of a value's magnitude: what its producer implies, else all that FP16 holds."""
    for _ in range(_FARTHEST):
        node = value.producer()
        if node is None or node.domain:
            break
        if node.op_type in _LIMITED:
            return 1.0
        if node.op_type == "Clip":
            bounds = [b for v in node.inputs[1:3] if (b := scalar(view.constant(v))) is not None]
            if len(bounds) == 2:
                return max(map(abs, bounds))
        if node.op_type not in HOMOGENEOUS or node.inputs[0] is None:
            break
        value = node.inputs[0]
    return FP16_MAX


def gain(node: ir.Node, index: int, tensor: ir.TensorProtocol, loss: Loss) -> float:
    """The largest absolute result for operands of absolute value one."""
    shape = tuple(int(d) for d in tensor.shape.numpy())
    if node.op_type == "Mul":
        return loss.peak
    if node.op_type == "Div":
        return reciprocal_peak(tensor)
    if node.op_type in ("Conv", "ConvTranspose"):
        if len(shape) < 3:
            return 0.0
        inner = math.prod(shape[1:])
        if node.op_type == "Conv":
            return _largest_sum(tensor, shape[0], lambda flat: flat // inner)
        groups = node.attributes.get_int("group", 1)
        each, window = max(1, shape[0] // groups), math.prod(shape[2:])
        return _largest_sum(
            tensor, groups * shape[1], lambda flat: flat // inner // each * shape[1] + flat // window % shape[1]
        )
    scale = abs(node.attributes.get_float("alpha", 1.0)) if node.op_type == "Gemm" else 1.0
    if node.op_type == "Gemm":
        if len(shape) != 2:
            return 0.0
        turned = node.attributes.get_int("transB" if index else "transA", 0) != 0
        kept = int(bool(index) != turned)
    elif len(shape) < 2:
        return loss.peak * tensor.size
    else:
        kept = len(shape) - 1 if index else len(shape) - 2
    # batches of a product: each has its own columns; the largest of all bounds them
    inner, count = math.prod(shape[kept + 1 :]), shape[kept]
    batch = shape[-1] * shape[-2]
    many = max(1, tensor.size // batch) if batch else 1

    return scale * _largest_sum(tensor, many * count, lambda flat: flat // batch * count + flat // inner % count)


def _largest_sum(tensor: ir.TensorProtocol, columns: int, column: _Column) -> float:
    """The largest sum of absolute values of those elements whose flat index has the same column."""
    sums = np.zeros(columns)
    start = 0
    for part in pieces(tensor):
        flat = np.arange(start, start + part.size)
        sums += np.bincount(column(flat), weights=np.abs(part.astype(np.float64)), minlength=columns)
        start += part.size
    return float(sums.max(initial=0.0))


def reciprocal_peak(tensor: ir.TensorProtocol) -> float:
    least = min((float(np.abs(part.astype(np.float64)).min(initial=math.inf)) for part in pieces(tensor)), default=0.0)
    return 1 / least if least > 0 else 0.0
