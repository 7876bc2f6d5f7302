"""Multiply constants that are out of FP16's range by a power of two, and divide by it in a later node.

``MatMul(x, w) * 1e6`` with weights of 1e-7 is exactly ``MatMul(x, w * 2**k) * (1e6 * 2**-k)``: a power of two changes
no digit. The next constant factor or BatchNormalization absorbs the division; if there is none, a new Mul divides.

This is safe without a run. The result is linear in the operand: ``|result| <= gain * |operand|``. The gain is the
largest sum of absolute weights that make one element. With a gain of at most one half, and a bias of at most 2**14, the
result fits FP16 whenever the operand does. Rounding the result costs no more than rounding the operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from dmlprep.graph.analysis.operators import MOVES
from dmlprep.graph.rewriting.builder import GraphBuilder, replace_value
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.precision.fp16 import FP16_MAX, FP16_NORMAL, CastTensor, Loss, cast_tensor, measure, pieces
from dmlprep.passes.precision.signature import operators
from dmlprep.passes.precision.view import View, constant_tensor, scalar
from dmlprep.portable.arrays import Array

RELATIVE_LOSS = 2.0**-9
"""The largest accepted rounding error of a tensor, as a share of its norm: 8 times the usual error. A larger error
means more than lost digits."""

RESTORES = "dmlprep.restores"
"""Key in the ``meta`` of an inserted Mul that divides by a power of two; the entry is the magnitude of its result."""

_BIAS_MAX = 2.0**14
_WORTH = 4096
"""The smallest weight, in elements, for which FP16 is worth an extra node that divides the result."""
_LOW, _HIGH = FP16_NORMAL, FP16_MAX / 16
_FP32_NORMAL = 2.0**-126
_FARTHEST_EXPONENT = 120  # FP32 can express this power of two, and its reciprocal
_FARTHEST = 16  # nodes between a constant and the factor that absorbs the power of two

_PRODUCTS = {"MatMul": (0, 1), "Gemm": (0, 1), "Conv": (1,), "ConvTranspose": (1,), "Mul": (0, 1), "Div": (1,)}
"""Operator -> indices of the operands in which its result is linear (for Div: in the reciprocal of the operand)."""
_BIAS = {"Gemm": 2, "Conv": 2, "ConvTranspose": 2}

HOMOGENEOUS = (MOVES - {"Concat", "Split", "Dropout"}) | operators(
    "Abs AveragePool GlobalAveragePool GlobalMaxPool MaxPool Neg ReduceMax ReduceMean ReduceMin Relu"
)
"""Operators for which f(k x) = k f(x) for each k > 0, and whose result is not larger than the operand."""

_LIMITED = frozenset({"Softmax", "Sigmoid", "HardSigmoid", "Tanh", "Sin", "Cos", "Erf", "Softsign"})
"""Operators whose result is at most 1 in magnitude."""

_Column = Callable[[Array], Array]
"""A function that maps flat indices of elements to the index of the sum that each belongs to."""
_FARTHEST_BOUND = 16  # nodes between an operand and the node that bounds it


@dataclass(frozen=True)
class Division:
    """The place where a scaled result is divided by the power of two again.

    Attributes:
        on_the_way: values that are multiplied by the power of two in the rewritten model, in order.
        node: the node whose constants absorb the division; ``None``: a new Mul after the first value divides.
        changes: for constant operands of ``node``: the operand's index, and the exponent of the power of two by which
            it is multiplied.
        epsilon: factor by which the attribute epsilon of ``node`` is multiplied.
        size: magnitude of the values before the rewrite, if the operands are about 1.
    """

    on_the_way: tuple[ir.Value, ...]
    node: ir.Node | None
    changes: tuple[tuple[int, int], ...] = ()
    epsilon: float = 1.0
    size: float = 1.0


@dataclass(frozen=True)
class Rescale:
    """The plan to rescale one constant.

    Attributes:
        value, node: the constant, and the node that reads it.
        exponent, result: the constant is multiplied by ``2**exponent``; this multiplies the node's result by
            ``2**result``.
        before, after: the constant's rounding loss in FP16 without and with the rescaling.
        bias: index of the node's bias, which is also multiplied by ``2**result``; ``None`` without a bias.
        dtype: the constant's element type.
        division: the place where the result is divided by ``2**result`` again.
    """

    value: ir.Value
    node: ir.Node
    exponent: int
    result: int
    before: Loss
    after: Loss
    bias: int | None
    dtype: ir.DataType
    division: Division = field(compare=False)


def plan_rescale(
    view: View, value: ir.Value, tensor: ir.TensorProtocol, loss: Loss, *, at_no_cost: bool = False
) -> Rescale | None:
    """Plan the rescaling of a constant for FP16; ``None`` if it is impossible, not safe, or not worth a new node.

    It reads the tensor twice, in pieces: once for its gain, once for its loss after scaling.

    Args:
        at_no_cost: return ``None`` if a node would have to be added for the division.
    """
    uses = list(value.uses())
    if len(uses) != 1 or value.is_graph_output() or not loss.norm or not math.isfinite(loss.norm):
        return None
    if view.model.ir_version < 4:  # every constant would have to be an input as well
        return None
    node, index = uses[0].node, uses[0].idx
    if node.domain or index not in _PRODUCTS.get(node.op_type, ()):
        return None
    operand = node.inputs[1 - index]
    if operand is None or not view.wide(operand) or view.constant(operand) is not None:
        return None
    grows = gain(node, index, tensor, loss)
    if not grows or not math.isfinite(grows):
        return None
    result = math.floor(math.log2(min(_BIAS_MAX * 2, allowed_gain(view, operand)) / grows))
    peak = reciprocal_peak(tensor) if node.op_type == "Div" else loss.peak
    result = min(result, -math.frexp(peak)[1])  # a peak of at most 1 is enough
    exponent = -result if node.op_type == "Div" else result
    if not result or abs(result) > _FARTHEST_EXPONENT:
        return None
    after = measure(CastTensor(tensor, ir.DataType.DOUBLE, exponent=exponent))
    if after.over or after.relative > RELATIVE_LOSS:
        return None
    bias = _BIAS.get(node.op_type)
    bias = bias if bias is not None and bias < len(node.inputs) and node.inputs[bias] is not None else None
    if bias is not None and not _bias_fits(view, node, bias, result):
        return None
    division = _division(view, node.outputs[0], result, peak)
    if division.node is None and (at_no_cost or node.op_type in ("Mul", "Div") or tensor.size < _WORTH):
        return None
    return Rescale(value, node, exponent, result, loss, after, bias, tensor.dtype, division)


def in_range(size: float) -> bool:
    """Return whether values of magnitude ``size`` are normal in FP16, and finite even at sixteen times that."""
    return _LOW <= size <= _HIGH


def _peak(tensor: ir.TensorProtocol, exponent: int) -> float:
    return measure(tensor).peak * 2.0**exponent


def _fits(tensor: ir.TensorProtocol, exponent: int) -> bool:
    if not FP16_NORMAL <= _peak(tensor, exponent) <= FP16_MAX:
        return False
    loss = measure(CastTensor(tensor, ir.DataType.DOUBLE, exponent=exponent))
    return not loss.over and loss.relative <= RELATIVE_LOSS


def _bias_fits(view: View, node: ir.Node, index: int, result: int) -> bool:
    value = node.inputs[index]
    tensor = view.constant(value)
    if value is None or tensor is None or len(list(value.uses())) != 1 or value.is_graph_output():
        return False
    beta = node.attributes.get_float("beta", 1.0) if node.op_type == "Gemm" else 1.0
    return _peak(tensor, result) * max(1.0, abs(beta)) <= _BIAS_MAX


def _division(view: View, value: ir.Value, result: int, size: float) -> Division:
    """Follow a value that is multiplied by ``2**result`` to a node whose constants can absorb the division.

    If the value is read twice, added or changed nonlinearly before such a node, a new Mul divides right after the node
    that computes the value.

    Args:
        size: the value's magnitude before the rewrite, if the operands are about 1.
    """
    way = [value]
    here = Division((value,), None, size=size)
    for _ in range(_FARTHEST):
        uses = list(value.uses())
        reader, index = (uses[0].node, uses[0].idx) if len(uses) == 1 and not value.is_graph_output() else (None, 0)
        if reader is None or reader.graph is not value.graph or reader.domain:
            return here
        folded = _folded(view, reader, index, result, size)
        if folded is not None:
            return Division(tuple(way), reader, *folded)
        plain = all(not v.uses() and not v.is_graph_output() for v in reader.outputs[1:])
        if reader.op_type in ("Mul", "Div") and (factor := _factor(view, reader, index)) and factor <= 1:
            size *= factor  # the factor increases nothing, and leaves the power of two to a later node
        elif reader.op_type not in HOMOGENEOUS or index != 0 or not plain:
            return here
        value = reader.outputs[0]
        way.append(value)
    return here


def _factor(view: View, node: ir.Node, index: int) -> float | None:
    """The largest factor by which a Mul or Div changes operand ``index``; ``None`` if its other operand is computed.

    Also ``None`` for the divisor of a Div.
    """
    if index != 0 and node.op_type != "Mul":
        return None
    tensor = view.constant(node.inputs[1 - index])
    if tensor is None:
        return None
    return measure(tensor).peak if node.op_type == "Mul" else reciprocal_peak(tensor)


def _folded(
    view: View, node: ir.Node, index: int, result: int, size: float
) -> tuple[tuple[tuple[int, int], ...], float] | None:
    """The changes to constants of ``node`` that divide by ``2**result`` again; ``None`` if they do not fit FP16.

    Also ``None`` if ``node`` has no constants that can divide: only Mul, Div and BatchNormalization have them. Operand
    ``index`` of ``node`` is multiplied by ``2**result``. Returns pairs of a constant operand's index and its exponent,
    and the factor for the attribute epsilon.
    """
    if node.op_type in ("Mul", "Div"):
        factor, tensor = _factor(view, node, index), view.constant(node.inputs[1 - index])
        exponent = -result if node.op_type == "Mul" else result
        if not factor or tensor is None or not in_range(size * factor) or not _fits(tensor, exponent):
            return None
        return ((1 - index, exponent),), 1.0
    if node.op_type != "BatchNormalization" or index != 0 or len([v for v in node.outputs if v.uses()]) > 1:
        return None
    scale, mean, variance = (view.constant(v) for v in (node.inputs[1], node.inputs[3], node.inputs[4]))
    if scale is None or mean is None or variance is None or _peak(mean, result) > _BIAS_MAX:
        return None
    # (x - m) s / sqrt(v + e) is unchanged if x and m are times 2**r, and either s is divided by 2**r, or v and e are
    # times 4**r
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    for into_variance in (result, 0):
        grown = epsilon * 4.0**into_variance
        changes = ((1, into_variance - result), (3, result), (4, 2 * into_variance))
        if _FP32_NORMAL <= grown <= FP16_MAX and _fits(scale, changes[0][1]) and _fits(variance, changes[2][1]):
            return tuple(c for c in changes if c[1]), 4.0**into_variance
    return None


def rescale(model: ir.Model, wanted: list[Rescale]) -> list[Rescale]:
    """Carry out rescalings in place: change constants, and insert divisions. Large tensors are scaled when read.

    Returns:
        the rescalings that were carried out. A rescaling that shares constants or values with an earlier one is left
        for the next plan.
    """
    names = Names(model)
    touched: set[ir.Value] = set()
    done: list[Rescale] = []
    for one in wanted:
        division = one.division
        changes = [(one.node, one.node.inputs.index(one.value), one.exponent)]
        changes += [(one.node, one.bias, one.result)] if one.bias is not None else []
        changes += [(division.node, index, exponent) for index, exponent in division.changes if division.node]
        involved = {value for node, index, _ in changes if (value := node.inputs[index]) is not None}
        involved.update(division.on_the_way)
        if involved & touched:
            continue
        touched |= involved
        for node, index, exponent in changes:
            _multiply(node, index, exponent, names)
        if division.epsilon != 1.0 and division.node is not None:
            epsilon = division.node.attributes.get_float("epsilon", 1e-5)
            division.node.attributes["epsilon"] = ir.AttrFloat32("epsilon", epsilon * division.epsilon)
        if division.node is None:
            _divide_here(one, names)
        else:
            for value in division.on_the_way:
                value.name = names.value(f"{value.name}_scaled")
        done.append(one)
    return done


def _multiply(node: ir.Node, index: int, exponent: int, names: Names) -> None:
    """Multiply a constant operand of ``node`` by ``2**exponent``, in place; a constant with other readers is copied."""
    value = node.inputs[index]
    assert value is not None
    producer = value.producer()
    tensor = value.const_value if producer is None else constant_tensor(producer)
    assert tensor is not None
    assert node.graph is not None
    scaled = cast_tensor(tensor, tensor.dtype, name=value.name, limit=None, exponent=exponent)
    if len(list(value.uses())) == 1 and producer is None and not value.is_graph_output():
        value.const_value = scaled
        return
    node.replace_input_with(index, GraphBuilder(node.graph, names).initializer(scaled, f"{value.name}_scaled"))


def _divide_here(one: Rescale, names: Names) -> None:
    """Insert a Mul that divides by the power of two. Its output takes over the scaled value's name and readers."""
    value, node = one.division.on_the_way[0], one.node
    assert node.graph is not None
    builder = GraphBuilder(node.graph, names)
    kind = value.type if isinstance(value.type, ir.TensorType) else ir.TensorType(one.dtype)
    factor = builder.constant(np.asarray(2.0**-one.result, kind.dtype.numpy()), f"{value.name}_scale")
    product = ir.Value(type=kind)
    restore = builder.new_node("Mul", [value, factor], [product], f"{node.name or node.op_type}_restore")
    restore.meta[RESTORES] = one.division.size
    replace_value(value, product, builder.value_name(f"{value.name}_scaled"), [restore])


def allowed_gain(view: View, operand: ir.Value) -> float:
    """The largest gain (see ``gain``) with which each possible operand gives a result within half of FP16's range."""
    return FP16_MAX / 2 / min(FP16_MAX, ceiling(view, operand))


def ceiling(view: View, value: ir.Value) -> float:
    """An upper bound of a value's magnitude, from the nodes that compute it; without a known bound, 65504."""
    for _ in range(_FARTHEST_BOUND):
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
    """The largest magnitude of the node's result if the other operand's elements have the magnitude 1.

    ``tensor`` is the constant at operand ``index``, with its measured ``loss``. 0 for unexpected ranks.
    """
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
        axis = int(bool(index) != (node.attributes.get_int("transB" if index else "transA", 0) != 0))
    elif len(shape) < 2:
        return loss.peak * tensor.size
    else:
        axis = len(shape) - 1 if index else len(shape) - 2
    # Each batch of a product has columns of its own; the largest sum of all bounds them.
    inner, count = math.prod(shape[axis + 1 :]), shape[axis]
    batch = shape[-1] * shape[-2]
    many = max(1, tensor.size // batch) if batch else 1
    return scale * _largest_sum(tensor, many * count, lambda flat: flat // batch * count + flat // inner % count)


def _largest_sum(tensor: ir.TensorProtocol, columns: int, column: _Column) -> float:
    """Sum the absolute values of all elements of each column, and return the largest sum.

    ``column`` maps flat indices of elements to one of ``columns`` column numbers.
    """
    sums = np.zeros(columns)
    start = 0
    for part in pieces(tensor):
        flat = np.arange(start, start + part.size)
        sums += np.bincount(column(flat), weights=np.abs(part.astype(np.float64)), minlength=columns)
        start += part.size
    return float(sums.max(initial=0.0))


def reciprocal_peak(tensor: ir.TensorProtocol) -> float:
    """Return the largest absolute value of ``1 / tensor``; 0 if the tensor is empty or contains a zero."""
    least = min((float(np.abs(part.astype(np.float64)).min(initial=math.inf)) for part in pieces(tensor)), default=0.0)
    return 1 / least if least > 0 else 0.0
