"""Rewrites of matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from dmlprep.passes.fix_quirks.editing import Edit
from dmlprep.targets.facts import Dim, NodeFacts, Value

__all__ = [
    "empty_product",
    "gemm_without_c",
    "matmul_rank",
    "matmul_vector",
    "qlinearmatmul_half",
    "squeeze",
    "unsqueeze",
]


def unsqueeze(edit: Edit, value: ir.Value, axis: int, opset: int) -> ir.Value:
    """A dimension of size 1 at ``axis``; axes are an input from opset 13 on."""
    if opset >= 13:
        return edit.before("Unsqueeze", [value, edit.integers([axis], "axes")], like=value)
    return edit.before("Unsqueeze", [value], {"axes": [axis]}, like=value)


def squeeze(edit: Edit, value: ir.Value, axis: int, opset: int) -> ir.Value:
    """Without the dimension of size 1 at ``axis``."""
    if opset >= 13:
        return edit.before("Squeeze", [value, edit.integers([axis], "axes")], like=value)
    return edit.before("Squeeze", [value], {"axes": [axis]}, like=value)


def gemm_without_c(facts: NodeFacts, edit: Edit) -> str:
    """Gemm(A, B) = Gemm(A, B, 0): C is broadcast."""
    a = facts.input(0)
    dtype = _dtype(a)
    if dtype is None:
        return "the type of its first input is not known"
    edit.set_input(2, edit.constant(np.zeros((1,), dtype.numpy()), "zero"))
    return ""


def _dtype(value: Value | None) -> ir.DataType | None:
    if value is None or not value.type or "(" in value.type:
        return None
    return ir.DataType[value.type.upper()]


def matmul_vector(facts: NodeFacts, edit: Edit) -> str:
    """A @ b = squeeze(A @ column(b)): the last dimension, of size 1, goes again."""
    a, b = edit.node.inputs
    first = facts.input(0)
    if a is None or b is None or first is None:
        return "an operand is missing"
    axis = -1 if first.rank is None else first.rank - 1
    if axis < 0 and facts.opset < 11:
        return "the rank of its first operand is not known"
    column = unsqueeze(edit, b, 1, facts.opset)
    product = edit.before("MatMul", [a, column], like=edit.node.outputs[0])
    edit.replace_output(squeeze(edit, product, axis, facts.opset))
    edit.remove()
    return ""


_PIN = "the sizes of its operands are not known: pin them first"


def matmul_rank(facts: NodeFacts, edit: Edit) -> str:
    """Fold the leading dimensions of both operands into one, and unfold those of the product.

    reshape([..., M, K] @ [..., K, N]) = [P, M, K] @ [P, K, N]; a matrix as second operand takes all rows at once.
    """
    second = 3 if facts.op == "QLinearMatMul" else 1
    a, b = facts.input(0), facts.input(second)
    inputs = list(edit.node.inputs)
    left, right = inputs[0], inputs[second]
    if any(v is not None and v.size != 1 for i, v in enumerate(facts.inputs) if i not in (0, second)):
        return "it has a scale or zero point for each row or column"
    if a is None or b is None or left is None or right is None or a.shape is None or b.shape is None:
        return "the rank of an operand is not known"
    if len(a.shape) < 2 or len(b.shape) < 2:
        return "an operand is a vector"
    shape = _product_shape(a.shape, b.shape)
    if shape is None or _unknown(shape) > 1:
        return _PIN
    rows: list[Dim] = [_only(a.shape[:-1]), a.shape[-1]]
    lead = [d for d in shape[:-2] if isinstance(d, int)]
    if len(b.shape) == 2:
        if _unknown(rows) > 1:
            return _PIN
        inputs[0] = _fold(edit, left, rows)
    else:
        pairs = ((left, a.shape), (right, b.shape))
        if len(lead) != len(shape) - 2 or any(_unknown(d[-2:]) > (d[:-2] == (*lead,)) for _, d in pairs):
            return _PIN
        inputs[0], inputs[second] = (_fold(edit, _spread(edit, v, d, lead), [prod(lead), *d[-2:]]) for v, d in pairs)
    product = edit.before(facts.op, inputs, like=edit.node.outputs[0])
    target = edit.integers([d if isinstance(d, int) else -1 for d in shape], "shape")
    edit.replace_output(edit.before("Reshape", [product, target], like=edit.node.outputs[0]))
    edit.remove()
    return ""


def _unknown(dims: Sequence[Dim]) -> int:
    return sum(not isinstance(d, int) for d in dims)


def _only(dims: Sequence[Dim]) -> Dim:
    known = [d for d in dims if isinstance(d, int)]
    return prod(known) if len(known) == len(dims) else None


def _product_shape(a: Sequence[Dim], b: Sequence[Dim]) -> list[Dim] | None:
    """Shape of A @ B by numpy's rule; ``None`` where the leading sizes cannot be told apart."""
    rank = max(len(a), len(b)) - 2
    lead: list[Dim] = []
    for x, y in zip([1] * (rank - len(a) + 2) + list(a[:-2]), [1] * (rank - len(b) + 2) + list(b[:-2]), strict=True):
        if y == 1:
            lead.append(x)
        elif x in (1, y):
            lead.append(y)
        else:
            return None
    return [*lead, a[-2], b[-1]]


def _fold(edit: Edit, value: ir.Value, dims: Sequence[Dim]) -> ir.Value:
    """Reshape; at most one size is unknown."""
    sizes = [d if isinstance(d, int) else -1 for d in dims]
    return edit.before("Reshape", [value, edit.integers(sizes, "shape")], like=value)


def _spread(edit: Edit, value: ir.Value, dims: Sequence[Dim], lead: list[int]) -> ir.Value:
    """Broadcast the leading dimensions to ``lead``, where they are not that already."""
    if list(dims[:-2]) == lead:
        return value
    sizes = [*lead, *(d for d in dims[-2:] if isinstance(d, int))]
    return edit.before("Expand", [value, edit.integers(sizes, "lead")], like=value)


def qlinearmatmul_half(facts: NodeFacts, edit: Edit) -> str:
    """The scales in FP32: every FP16 number is one."""
    for index in (1, 4, 6):
        value, scale = edit.node.inputs[index], facts.input(index)
        if value is not None and scale is not None and scale.type == "float16":
            wide = edit.before("Cast", [value], {"to": int(ir.DataType.FLOAT)}, dtype=ir.DataType.FLOAT)
            edit.set_input(index, wide)
    return ""


def empty_product(facts: NodeFacts, edit: Edit) -> str:
    """A product over nothing is zeros."""
    out = facts.output()
    dtype = _dtype(out)
    if out is None or dtype is None or not out.static or out.shape is None:
        return "the sizes of its output are not known"
    if facts.op == "Gemm" and facts.input(2) is not None:
        return "it adds C"
    edit.replace_output(edit.constant(np.zeros([d for d in out.shape if isinstance(d, int)], dtype.numpy()), "zeros"))
    edit.remove()
    return ""
