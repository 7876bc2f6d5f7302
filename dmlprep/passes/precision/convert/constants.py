"""Decide for each constant what happens to it in FP16.

Attention masks become less extreme, as far as is safe. A constant that would lose too much is multiplied by a power of
two; if that is not safe, the nodes that read it stay in FP32.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from dmlprep.graph.analysis.operators import MOVES
from dmlprep.passes.precision.convert.masks import Mask, agreed, from_big_constant, mask_of, side_of
from dmlprep.passes.precision.convert.rescale import RELATIVE_LOSS, RESTORES, Rescale, in_range, plan_rescale
from dmlprep.passes.precision.fp16 import FP16_MAX, FP16_NORMAL, Loss, measure, to_half
from dmlprep.passes.precision.policy.rules import Reason
from dmlprep.passes.precision.policy.scales import out_of_range, result_scale
from dmlprep.passes.precision.view import View, scalar

__all__ = ["NEEDS_FP64", "RELATIVE_LOSS", "Constants", "from_big_constant", "judge"]

_LOW_ENOUGH = FP16_MAX / 8
"""Masks up to this magnitude stay unchanged: the sum of eight still fits FP16."""

_SMALL = 1 << 16
"""Constants of at most this many elements are read even if only FP32 nodes read them: a mask may reach FP16 nodes."""

_THREADS = min(4, os.cpu_count() or 1)
"""Number of threads that measure constants. numpy works without Python's lock, and each thread reads in pieces."""

NEEDS_FP64 = "needs-fp64"
"""Name of the rule for FP64 constants outside FP32's range: the nodes that read them stay in FP64."""

_FP32_MAX, _FP32_NORMAL = 3.4028234663852886e38, 2.0**-126
_FACTOR_LOSS = 2.0**-7  # of the largest factor of a BatchNormalization: a quarter of the bound of FP16 parity
_TINY_FLOOR, _HIGH_FLOOR = 2.0**-20, 32768.0


@dataclass
class Constants:
    """The decisions about the constants of a model.

    Attributes:
        limits: value -> magnitude to which its elements are clamped, if that is not 65504.
        keep: nodes that must stay in FP32 because of a constant, with the reason; in FP64 with the rule ``NEEDS_FP64``.
        losses: value -> its rounding loss in FP16; without constants that only FP32 nodes read, unless they are masks.
        masks: value -> the new magnitude of its mask entries, for each mask that must change.
        bounds: constants beyond 65504 that only bound a Clip (or fill a Pad); FP16's lowest or highest finite value
            replaces them.
        kept_for: value -> the rule that keeps its readers in FP32.
        rescaled: constants to multiply by a power of two before the conversion, instead of keeping their readers.
        measured: ``id(tensor)`` -> the tensor and its loss, so that a second call of ``judge`` need not read it.
    """

    limits: dict[ir.Value, float] = field(default_factory=dict)
    keep: dict[ir.Node, Reason] = field(default_factory=dict)
    losses: dict[ir.Value, Loss] = field(default_factory=dict)
    masks: dict[ir.Value, float] = field(default_factory=dict)
    bounds: set[ir.Value] = field(default_factory=set)
    kept_for: dict[ir.Value, str] = field(default_factory=dict)
    rescaled: list[Rescale] = field(default_factory=list)
    measured: dict[int, tuple[ir.TensorProtocol, Loss]] = field(default_factory=dict)


@dataclass
class _Read:
    """A constant that is read, and the nodes that would read it in FP16."""

    value: ir.Value
    tensor: ir.TensorProtocol
    readers: list[ir.Node]
    loss: Loss = field(init=False)

    @property
    def beyond_fp32(self) -> bool:
        """Return whether the largest value of an FP64 constant is too large for FP32, or below its smallest normal."""
        peak = self.loss.peak
        return self.tensor.dtype == ir.DataType.DOUBLE and (peak > _FP32_MAX or 0 < peak < _FP32_NORMAL)


def judge(view: View, full: Iterable[ir.Node], known: Constants | None = None) -> Constants:
    """Read each constant that a node would use in FP16 once, and decide what happens to it. The model is unchanged.

    Args:
        full: nodes that stay in FP32 anyway; large constants that only they read are ignored, except FP64 constants.
        known: the result of an earlier call, before constants were rescaled; its tensors are not read again.
    """
    decided = Constants(measured=dict(known.measured) if known is not None else {})
    fp32_nodes = set(full)
    read: list[_Read] = []
    for value in _candidates(view):
        tensor = view.constant(value) or _filled(value)
        double = tensor is not None and tensor.dtype == ir.DataType.DOUBLE
        readers = [n for n in value.consumers() if (double or n not in fp32_nodes) and _takes_half(view, n, value)]
        if tensor is not None and (readers or not value.consumers() or tensor.size <= _SMALL):
            read.append(_Read(value, tensor, readers))
    unique = {id(one.tensor): one.tensor for one in read if id(one.tensor) not in decided.measured}
    with ThreadPoolExecutor(_THREADS) as pool:
        for tensor, loss in zip(unique.values(), pool.map(measure, unique.values()), strict=True):
            decided.measured[id(tensor)] = tensor, loss
    _restored(view, decided)
    for one in read:
        one.loss = decided.measured[id(one.tensor)][1]
    decided.masks = agreed({one.value: mask for one in read if (mask := _mask(view, one, fp32_nodes)) is not None})
    decided.limits = dict(decided.masks)
    for one in read:
        value, loss = one.value, one.loss
        if not one.beyond_fp32:
            one.readers = [n for n in one.readers if n not in fp32_nodes]
        if value in decided.masks:
            decided.losses[value] = loss
        if value in decided.masks or (value.consumers() and not one.readers):
            continue
        decided.losses[value] = loss
        _variances(view, one, decided)
        if loss.over:
            _beyond(view, one, decided)
        elif loss.relative > RELATIVE_LOSS or 0 < loss.peak < FP16_NORMAL:  # 2**-20 is exact, but its products are not
            _below(view, one, decided)
        elif not in_range(loss.peak):
            _rescales(view, one, decided, at_no_cost=True)
    return decided


def _mask(view: View, one: _Read, fp32_nodes: set[ir.Node]) -> Mask | None:
    """Return the facts about a constant as a mask; ``None`` if it is not a mask, or needs no change."""
    peak, readers = one.loss.peak, one.value.consumers()
    if peak <= _LOW_ENOUGH or not readers or _is_bound(one.value, readers):
        return None
    mask = mask_of(view, one.value, side_of(one.tensor, FP16_MAX if one.loss.over else _LOW_ENOUGH), fp32_nodes)
    return mask if mask is not None and mask.half and peak > mask.limit else None


def _is_bound(value: ir.Value, readers: Iterable[ir.Node]) -> bool:
    return all(n.op_type in ("Clip", "Pad") and n.inputs[0] is not value for n in readers)


def _restored(view: View, constants: Constants) -> None:
    """Keep in FP32 the inserted divisions by a power of two whose results are not ``in_range``, and their readers.

    The nodes are added to ``constants.keep``.
    """
    for node in view.order:
        size = node.meta.get(RESTORES)
        if size is not None and not in_range(size):
            text = f"its result reaches {size:.2g}, above 65504"
            constants.keep[node] = Reason("rescaled", text)
            _follow_scale(view, node, size, "rescaled", text, constants)


def _rescales(view: View, one: _Read, constants: Constants, *, at_no_cost: bool = False) -> bool:
    """Plan to multiply the constant by a power of two, and return whether that is possible and safe.

    The plan is added to ``constants.rescaled``. ``at_no_cost``: only if the plan adds no node.
    """
    if set(one.value.consumers()) != set(one.readers) or view.constant(one.value) is None:
        return False
    planned = plan_rescale(view, one.value, one.tensor, one.loss, at_no_cost=at_no_cost)
    if planned is not None:
        constants.rescaled.append(planned)
    return planned is not None


def _candidates(view: View) -> list[ir.Value]:
    values: dict[ir.Value, None] = {}
    for node in view.order:
        values |= dict.fromkeys(v for v in node.inputs if v and view.wide(v) and view.constant(v) is not None)
        output = node.outputs[0] if node.outputs else None
        handed_on = node.op_type == "Constant" and output is not None and output.is_graph_output()
        if output is not None and view.wide(output) and (handed_on or node.op_type == "ConstantOfShape"):
            values.setdefault(output)
    return list(values)


def _filled(value: ir.Value) -> ir.TensorProtocol | None:
    producer = value.producer()
    fills = producer is not None and producer.op_type == "ConstantOfShape"
    attribute = producer.attributes.get("value") if producer is not None and fills else None
    return attribute.as_tensor() if attribute is not None else None


def _takes_half(view: View, node: ir.Node, value: ir.Value) -> bool:
    if node.op_type in ("Cast", "CastLike"):
        return True
    return any(
        v is value and port is not None and port.variable and ir.DataType.FLOAT16 in port.floats
        for _, v, port in view.wide_inputs(node)
    )


def _keep(constants: Constants, value: ir.Value, nodes: Iterable[ir.Node], rule: str, text: str) -> None:
    constants.kept_for[value] = rule
    for node in nodes:
        constants.keep.setdefault(node, Reason(rule, text))


def _beyond(view: View, one: _Read, constants: Constants) -> None:
    value, peak = one.value, one.loss.peak
    if one.readers and _is_bound(value, one.readers):
        constants.bounds.add(value)
        return
    if _rescales(view, one, constants):
        return
    text = f"constant {value.name!r} holds {peak:g}"
    rule = NEEDS_FP64 if one.beyond_fp32 else "constant-too-large"
    _keep(constants, value, one.readers, rule, f"{text}, above 65504")
    for node in one.readers:
        _follow_scale(view, node, result_scale(node, value, peak), rule, text, constants)
    producer = value.producer()
    if producer is not None and value.is_graph_output():  # in a body: the node with the body forwards it
        _follow_scale(view, producer, peak, rule, text, constants)


_ADDED = {
    # operator -> inputs that are only added to the result: losing tiny ones has no visible effect
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm"), (2,)),
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization", "LayerNormalization"), (2,)),
    "BatchNormalization": (2, 3, 4),
    "FusedConv": (2, 3),
    "SkipLayerNormalization": (3, 4),
}


def _below(view: View, one: _Read, constants: Constants) -> None:
    if _rescales(view, one, constants):
        return
    value, peak, number = one.value, one.loss.peak, scalar(one.tensor)
    text = (
        f"constant {value.name!r} would have a relative rounding error of {one.loss.relative:.2g} in FP16 "
        f"(largest value {peak:g})"
    )
    for node in one.readers:
        places = [i for i, v in enumerate(node.inputs) if v is value]
        if all(i in _ADDED.get(node.op_type, ()) for i in places):
            continue
        if node.op_type in ("Add", "Sub", "Max", "Min", "Sum") or (node.op_type == "Clip" and 0 not in places):
            # Added to another operand, only an epsilon matters: it prevents a division by zero.
            if number is not None and (chain := _floor_chain(view, node, abs(number))):
                _keep(constants, value, [node], "constant-too-small", text)
                for reader in chain:
                    constants.keep.setdefault(
                        reader,
                        Reason("constant-too-small", f"it needs its epsilon to avoid a division by zero: {text}"),
                    )
        elif node.op_type not in ("Constant", "Where", "Concat", "Pad", "Equal", "Greater", "Less"):
            rule = NEEDS_FP64 if one.beyond_fp32 else "constant-too-small"
            _keep(constants, value, [node], rule, text)
            _follow_scale(view, node, result_scale(node, value, peak), rule, text, constants)


def _follow_scale(view: View, start: ir.Node, scale: float, rule: str, text: str, constants: Constants) -> None:
    """Keep in FP32 the nodes that depend on the result of ``start``, until values are in FP16's range again.

    ``scale`` is the magnitude of that result. The nodes are added to ``constants.keep``.
    """
    for reader in out_of_range(view, start, scale):
        constants.keep.setdefault(reader, Reason(rule, f"it reads a value that FP16 cannot hold: {text}"))


def _variances(view: View, one: _Read, constants: Constants) -> None:
    """Keep in FP32 each BatchNormalization whose factors scale / sqrt(variance + epsilon) would change in FP16."""
    value = one.value
    for node in one.readers:
        if node.op_type != "BatchNormalization" or len(node.inputs) < 5 or node.inputs[4] is not value:
            continue
        scale, variance = (view.constant(node.inputs[i]) for i in (1, 4))
        if scale is None or variance is None:
            continue
        epsilon = node.attributes.get_float("epsilon", 1e-5)
        arrays = [np.asarray(t.numpy(), np.float64) for t in (scale, variance)]
        with np.errstate(all="ignore"):
            factor, rounded = (
                s / np.sqrt(np.abs(v) + epsilon) for s, v in (arrays, [to_half(a).astype(np.float64) for a in arrays])
            )
            off = np.abs(factor - rounded).max(initial=0)
        if not off <= _FACTOR_LOSS * np.abs(factor).max(initial=0):
            _keep(constants, value, [node], "constant-too-small", f"a variance of {value.name!r} vanishes in FP16")


def _floor_chain(view: View, start: ir.Node, floor: float) -> list[ir.Node]:
    """The nodes after ``start`` that must stay in FP32 because they rely on an epsilon that FP16 would lose.

    ``start`` adds the epsilon ``floor`` to a value, or bounds the value by it. The nodes carry the result to a division
    or a logarithm, which the epsilon protects. Empty if there is none.
    """
    chain: list[ir.Node] = []
    stack = [(start, floor)]
    visited: set[ir.Node] = set()
    sensitive = False
    while stack and len(visited) < 64:
        node, low = stack.pop()
        for value in node.outputs:
            for reader in value.consumers():
                if reader.op_type in ("Cast", "Shape") or reader in visited:
                    continue
                visited.add(reader)
                divides = _divides(reader, value)
                if reader.op_type == "Pow":
                    power = scalar(view.constant(reader.inputs[1]))
                    divides = divides or power is None or power < 0
                after = _floor_through(view, reader, low)
                outside = _outside(low)
                needed = outside or (after is not None and _outside(after))
                if needed and (divides or after is not None or low > _HIGH_FLOOR):
                    chain.append(reader)
                    sensitive = sensitive or divides or low > _HIGH_FLOOR
                if after is not None:
                    sensitive = sensitive or (outside and reader.op_type == "Sqrt" and _divides_soon(reader))
                    stack.append((reader, after))
    return chain if sensitive else []


def _outside(floor: float) -> bool:
    return not _TINY_FLOOR <= floor <= _HIGH_FLOOR


def _divides_soon(node: ir.Node) -> bool:
    """Return whether the result of ``node``, a root, is used next as a divisor, or in a reciprocal or logarithm."""
    readers = [(v, r) for v in node.outputs for r in v.consumers()]
    readers += [(w, r) for v, n in readers if n.op_type in MOVES for w in n.outputs for r in w.consumers()]
    return any(_divides(reader, value) for value, reader in readers)


def _divides(node: ir.Node, value: ir.Value) -> bool:
    return node.op_type in ("Reciprocal", "Log") or (node.op_type == "Div" and node.inputs[1] is value)


def _floor_through(view: View, node: ir.Node, low: float) -> float | None:
    if node.op_type == "Sqrt":
        return math.sqrt(low)
    if node.op_type == "Reciprocal":
        return 1 / low
    if node.op_type == "Pow":
        power = scalar(view.constant(node.inputs[1]))
        return low**power if power is not None and -8 < power < 8 else None
    if node.op_type in MOVES:
        return low
    if node.op_type == "Div" and view.constant(node.inputs[0]) is not None:
        return abs(scalar(view.constant(node.inputs[0])) or 1.0) / low
    return None
