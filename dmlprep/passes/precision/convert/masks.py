"""Attention masks: very large constants that only mean 'lower (or higher) than any score', and their values in FP16."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from dmlprep.graph.analysis.operators import MOVES
from dmlprep.passes.precision.fp16 import FP16_MAX, cast_tensor, pieces
from dmlprep.passes.precision.policy.stretches import COMPARES
from dmlprep.passes.precision.signature import operators
from dmlprep.passes.precision.view import View, constant_tensor, set_constant_tensor

MASK = 57344.0
"""The magnitude of masks in FP16: 7 * 2**13. A sum with scores up to 8160 stays finite. The spacing of 32 between FP16
numbers of this size absorbs scores below 16, so a row that is masked completely stays uniform, as in FP32 with -1e9."""

LEAST = 1024.0
"""The least magnitude of a mask after its factors. A smaller mask might not be lower than any score."""

_STEPS, _DEEPEST = 4096, 8
_SMALL = 4096  # the most elements of a constant that is examined as a factor

_WAYS = MOVES | {"Add", "Sub", "Mul", "Where", "Neg", "Cast", "Div", "Max", "Min", "Sum", "Pad", "Gemm"}
_LOW_ENDS = operators(
    "Softmax LogSoftmax ArgMax TopK ReduceMax Max Exp Sigmoid Hardmax GlobalMaxPool MaxPool Attention "
    "MultiHeadAttention GroupQueryAttention BiasSoftmax Relu Tanh"
)
_HIGH_ENDS = frozenset({"ArgMin", "ReduceMin", "Min"})


@dataclass(frozen=True)
class Mask:
    """The facts about a constant that is a mask.

    Attributes:
        limit: the largest magnitude that its entries may have in FP16.
        compared: constants that the mask is compared with, which must get the same limit.
        half: whether a node that carries the mask to its end computes in FP16; also true if only comparisons read it.
    """

    limit: float
    compared: frozenset[ir.Value]
    half: bool


@dataclass
class _Trace:
    """The facts collected while one constant is followed through the graph.

    Attributes:
        state: each value computed from the constant -> its sign (-1, 1), the number of masks added into it, and the
            factor by which the mask is multiplied.
        deepest: the largest number of added masks; ``highest``, ``lowest``: the extreme factors.
        ended: whether a way ends in an operator that ignores how extreme the mask is (Softmax).
        compared: constants that the mask is compared with.
        nodes: the floating-point nodes on the ways.
    """

    state: dict[ir.Value, tuple[int, int, float]]
    deepest: int = 1
    highest: float = 1.0
    lowest: float = 1.0
    ended: bool = False
    compared: set[ir.Value] = field(default_factory=set)
    nodes: set[ir.Node] = field(default_factory=set)


def side_of(tensor: ir.TensorProtocol, over: float = FP16_MAX) -> int:
    """Return the sign of the finite values whose magnitude exceeds ``over``: -1 or 1 if they share it, otherwise 0.

    0 also means that there is no such value. The tensor is read in pieces.
    """
    low = high = False
    for part in pieces(tensor):
        finite = part[np.isfinite(part)]
        low, high = low or bool((finite < -over).any()), high or bool((finite > over).any())
    return 0 if low == high else -1 if low else 1


def lower(masks: Mapping[ir.Value, float]) -> None:
    """Clamp the elements of each mask to its limit, in place and in the present type, before the conversion.

    Large tensors are clamped when they are read. A mask may stay in FP32 while the Add to the scores is in FP16.
    Without the clamp, the cast between them would give infinities.
    """
    for value, limit in masks.items():
        producer = value.producer()
        if producer is None:
            tensor = value.const_value
            assert tensor is not None
            value.const_value = cast_tensor(tensor, tensor.dtype, name=value.name, limit=None, clamp=limit)
            continue
        if producer.op_type == "ConstantOfShape":
            tensor = producer.attributes["value"].as_tensor()
        else:
            tensor = constant_tensor(producer)
            assert tensor is not None
        set_constant_tensor(producer, cast_tensor(tensor, tensor.dtype, limit=None, clamp=limit))


def mask_of(view: View, value: ir.Value, side: int, fp32_nodes: Collection[ir.Node]) -> Mask | None:
    """Return the facts about a constant as a mask; ``None`` if its exact value might matter somewhere.

    Also ``None`` if its limit, with the factors, would be below ``LEAST``.

    Args:
        side: -1 for a very low constant, 1 for a very high one, 0 for neither (the result is ``None``).
    """
    trace = _Trace({value: (side, 1, 1.0)})
    if not side or not _follow(view, value, trace) or not (trace.ended or trace.compared):
        return None
    depth = max(trace.deepest, 2 if _meets_another(trace, value) else 1)
    limit = MASK / depth / max(1.0, trace.highest)
    if limit * min(1.0, trace.lowest) < LEAST:
        return None
    return Mask(
        limit, frozenset(trace.compared), not trace.ended or any(node not in fp32_nodes for node in trace.nodes)
    )


def _follow(view: View, value: ir.Value, trace: _Trace) -> bool:
    stack, steps = [value], 0
    while stack:
        at = stack.pop()
        for node in at.consumers():
            steps += 1
            step = _step(view, node, at, trace) if steps <= _STEPS else None
            if step is None:
                return False
            if not step:
                continue
            side, depth, factor = step
            trace.deepest = max(trace.deepest, depth)
            trace.highest, trace.lowest = max(trace.highest, factor), min(trace.lowest, factor)
            for out in node.outputs:
                if out.is_graph_output() or depth > _DEEPEST:
                    return False
                known = trace.state.get(out)
                if known is None or depth > known[1]:
                    trace.state[out] = side, depth, factor
                    stack.append(out)
    return True


def _step(view: View, node: ir.Node, at: ir.Value, trace: _Trace) -> tuple[int, int, float] | tuple[()] | None:
    """Follow a mask from ``at`` through one node, and return its sign, number of added masks and factor after it.

    Empty if the node ends the way harmlessly (Softmax, a comparison); ``None`` if the mask's exact value matters.
    """
    side, depth, factor = trace.state[at]
    op = node.op_type
    if op in COMPARES:
        return () if _compares_well(view, node, at, trace) else None
    if op == "Clip" and node.inputs[0] is not at:
        return ()
    if op == "Cast" and not any(view.wide(v) for v in node.outputs):
        to = node.attributes.get("to")
        return () if to is not None and to.value == ir.DataType.BOOL.value else None
    if view.is_float(node) and op != "Cast":
        trace.nodes.add(node)
    if op in (_LOW_ENDS if side < 0 else _HIGH_ENDS):
        trace.ended = True
        return ()
    if op not in _WAYS or (op == "Div" and node.inputs[0] is not at):
        return None
    if op == "Gemm" and at in node.inputs[:2]:
        return None  # the simplifier fuses MatMul and Add into Gemm: an added mask becomes its C
    if op == "Neg" or (op == "Sub" and node.inputs[1] is at):
        side = -side
    if op in ("Mul", "Div", "Gemm"):
        other = next((v for v in node.inputs if v is not at), None)
        by = node.attributes.get_float("beta", 1.0) if op == "Gemm" else _factor(view, other)
        side, factor = (-side if by < 0 else side), factor * (1 / abs(by) if op == "Div" else abs(by))
    if op in ("Add", "Sum", "Sub", "Gemm"):
        # Adding two values that both come from masks doubles the added number.
        others = {v for v in node.inputs if v is not None and v is not at}
        depth += sum(trace.state[v][1] for v in others if v in trace.state)
    return side, depth, factor


def _factor(view: View, other: ir.Value | None) -> float:
    """The factor of a mask: the element of a constant operand that is largest in magnitude, with its sign.

    1 if the operand is computed, as it then selects by 0 or 1. Also 1 if the constant has more than 4096 elements, or
    if that element is 0 or not finite.
    """
    tensor = view.constant(other)
    if tensor is None or not 0 < tensor.size <= _SMALL:
        return 1.0
    values = np.asarray(tensor.numpy(), np.float64).reshape(-1)
    peak = float(values[np.abs(values).argmax()])
    return peak if peak and np.isfinite(peak) else 1.0


def _compares_well(view: View, node: ir.Node, at: ir.Value, trace: _Trace) -> bool:
    """Return whether a comparison has the same result if the mask becomes less extreme.

    Other very large constants in the comparison are added to ``trace.compared``.
    """
    for other in (v for v in node.inputs if v is not None and v is not at):
        tensor = view.constant(other)
        if tensor is not None and tensor.size <= _SMALL:
            values = np.asarray(tensor.numpy(), np.float64)
            if (np.abs(values) <= LEAST / 2).all() or np.isinf(values).all():
                continue
        others = _big_constants(other, FP16_MAX) if node.op_type == "Equal" else set()
        if not others:
            return False
        trace.compared |= others
    return True


def _meets_another(trace: _Trace, value: ir.Value) -> bool:
    """Return whether another very large constant is added to this mask."""
    adds = (node for at in trace.state for node in at.consumers() if node.op_type in ("Add", "Sum", "Where"))
    others = (v for node in adds for v in node.inputs if v is not None and v not in trace.state and v is not value)
    return any(from_big_constant(other, 1e4) for other in others)  # -1e4 is also a mask, and fits


def from_big_constant(value: ir.Value, over: float = FP16_MAX) -> bool:
    """Return whether a value is computed from a small constant whose magnitude exceeds ``over``, as masks are.

    The search follows only operators that masks pass (Add, Sub, Mul, Where, Cast, Reshape ...). Constants of more than
    4096 elements and infinite elements do not count. It ends after 24 values.
    """
    return bool(_big_constants(value, over))


def _big_constants(value: ir.Value, over: float) -> set[ir.Value]:
    """The constants that ``from_big_constant`` searches for; empty if there are none."""
    constants: set[ir.Value] = set()
    stack, steps = [value], 0
    while stack and steps < 24:
        steps += 1
        at = stack.pop()
        tensor = at.const_value if at.is_initializer() else None
        producer = at.producer()
        if tensor is None and producer is not None and producer.op_type in ("Constant", "ConstantOfShape"):
            attribute = producer.attributes.get("value")
            tensor = attribute.as_tensor() if attribute is not None else constant_tensor(producer)
        if tensor is not None and tensor.size <= _SMALL and tensor.dtype.is_floating_point():
            array = np.asarray(tensor.numpy(), np.float64)
            if array.size and bool((np.isfinite(array) & (np.abs(array) > over)).any()):
                constants.add(at)
        elif producer is not None and producer.op_type in MOVES | {"Mul", "Where", "Sub", "Cast", "Add"}:
            stack += [v for v in producer.inputs if v is not None]
    return constants


def agreed(masks: Mapping[ir.Value, Mask]) -> dict[ir.Value, float]:
    """Return constant -> limit for the masks that may change.

    A mask that is compared with a constant that is not a mask is left out. If any masks are compared with each other,
    all get the lowest limit.
    """
    remaining = dict(masks)
    while lost := [v for v, mask in remaining.items() if any(other not in remaining for other in mask.compared)]:
        for value in lost:
            del remaining[value]
    same = min((mask.limit for mask in remaining.values()), default=0.0)
    together = any(mask.compared for mask in remaining.values())
    return {value: same if together else mask.limit for value, mask in remaining.items()}
