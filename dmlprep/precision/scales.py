"""Values out of FP16's range: how far a factor carries them, and where they come back.

Nothing is run here: a factor of 1e5 is taken to make values of that size, and what moves, adds or scales them goes on
in FP32 until a factor brings them back, or an operator whose results do not depend on the size of its operands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
import onnx_ir as ir

from dmlprep.model.walk import attribute_graphs
from dmlprep.precision.view import MOVES, UNTYPED, View

__all__ = ["carried_sums", "integer_sums", "long_sums", "out_of_range", "result_scale"]

_LOW, _HIGH = 2.0**-14, 4096.0
"""A value of this size is back: it is normal in FP16, and sixteen times it is finite."""
_FARTHEST = 64  # nodes: beyond it, the true-FP16 reference tells
_SMALL = 4096  # elements: a constant whose size is looked at; a weight has more
_LONG = 16384
"""Terms of about 1 whose sum, four times as large, overflows."""

_FEW = 32
"""Turns of a loop whose sum loses no more than 32 roundings: 1.6 % at worst, a tenth of that as a rule."""

_KEEPS_SCALE = MOVES | frozenset(
    """
    Abs AveragePool Conv ConvTranspose Gemm GlobalAveragePool GlobalMaxPool LeakyRelu MatMul Max MaxPool Min Neg PRelu
    Pad ReduceMax ReduceMean ReduceMin Relu Resize Upsample
    """.split()  # noqa: SIM905 - reads better as words
)
_NORMALISES = frozenset(
    """
    BatchNormalization Clip Erf GroupNormalization InstanceNormalization LayerNormalization Log LogSoftmax
    RMSNormalization Sigmoid Softmax Sqrt Tanh
    """.split()  # noqa: SIM905 - reads better as words
)
_ADDS = frozenset({"Add", "Sub", "Sum", "Where", "Mean"})


def _peak(view: View, value: ir.Value | None) -> float | None:
    """Largest absolute value of a small constant; ``None`` for anything else."""
    tensor = view.constant(value)
    if tensor is None or not 0 < tensor.size <= _SMALL:
        return None
    values = np.abs(np.asarray(tensor.numpy(), np.float64))
    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size else None


def result_scale(node: ir.Node, value: ir.Value, peak: float) -> float:
    """The size of what a node makes of a constant of size ``peak`` and other operands of about 1.

    What is divided by a large number is taken to be as large; what a normalisation takes as mean or variance, too.
    """
    if node.op_type == "Div" and len(node.inputs) > 1 and node.inputs[1] is value:
        return 1 / peak if 0 < peak < 1 else 1.0
    return 1.0 if node.op_type in _NORMALISES else peak


def _was_integer(view: View, value: ir.Value | None) -> bool:
    node = value.producer() if value is not None else None
    while node is not None and node.op_type in MOVES and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node is not None and node.op_type == "Cast" and not view.wide(node.inputs[0])


def _scaled(view: View, reader: ir.Node, value: ir.Value, scale: float) -> float | None:
    """The size of a reader's result, ``None`` where it does not follow from the size of its operand."""
    if reader.op_type in ("Mul", "Div"):
        divides = reader.op_type == "Div"
        if divides and reader.inputs[1] is value:
            return None
        factors = [_peak(view, v) for v in reader.inputs if v is not value]
        if factors == [None] and scale < _LOW:
            return None
        for factor in factors:
            if factor:
                scale = scale / factor if divides else scale * factor
        return scale
    return scale if reader.op_type in _KEEPS_SCALE or reader.op_type in _ADDS or reader.op_type == "If" else None


def _reads_too_little(view: View, reader: ir.Node, value: ir.Value, scale: float) -> bool:
    """Whether a reader of small values makes something that does not show their digits: a sum with what is not small,
    or a function that has them near a constant (Exp)."""
    if scale > _HIGH or reader.op_type in _KEEPS_SCALE | _NORMALISES | {"Mul", "Div", "If"}:
        return False
    if reader.op_type in _ADDS:
        peaks = [_peak(view, v) for v in reader.inputs if v is not None and v is not value and view.wide(v)]
        return any(p is None or p > 64 * scale for p in peaks)
    return True


def out_of_range(view: View, start: ir.Node, scale: float) -> Iterator[ir.Node]:
    """The nodes that read what ``start`` makes, of size ``scale``, up to where values are in FP16's range again."""
    if start.op_type == "Mul" and scale < _LOW and any(_was_integer(view, v) for v in start.inputs):
        return  # integers are as large as the factor is small
    stack: list[tuple[ir.Value, float]] = [(v, scale) for v in start.outputs if view.wide(v)]
    seen = {start}
    while stack and len(seen) < _FARTHEST:
        value, scale = stack.pop()
        if _LOW <= scale <= _HIGH:
            continue
        for reader in (*value.consumers(), *_holders(view, value)):
            if reader in seen or (reader.op_type in UNTYPED and reader.op_type != "Cast"):
                continue
            seen.add(reader)
            if reader.op_type in ("Cast", "CastLike"):
                stack += [(v, scale) for v in reader.outputs if view.wide(v)]
                continue
            if _reads_too_little(view, reader, value, scale):
                continue
            yield reader
            after = _scaled(view, reader, value, scale)
            if after is not None:
                stack += [(v, after) for v in reader.outputs if view.wide(v)]


def _holders(view: View, value: ir.Value) -> Iterator[ir.Node]:
    """The node whose body a value is an output of."""
    graph = value.graph
    if graph is not None and value.is_graph_output() and id(graph) in view.owner:
        yield view.owner[id(graph)]


def integer_sums(view: View) -> Iterator[tuple[ir.Node, str]]:
    """What scales the integer results of MatMulInteger and ConvInteger back: they go up to 2**31 before."""
    for node in view.order:
        if node.op_type not in ("MatMulInteger", "ConvInteger"):
            continue
        stack, seen = list(node.outputs), set[ir.Node]()
        while stack:
            value = stack.pop()
            for reader in value.consumers():
                if reader in seen or reader.op_type not in MOVES | {"Cast", "Mul", "Div"}:
                    if reader.op_type in ("Add", "Sub") and reader not in seen and not view.is_float(reader):
                        stack += reader.outputs
                        seen.add(reader)
                    continue
                seen.add(reader)
                stack += reader.outputs
                if reader.op_type != "Cast" and view.is_float(reader):
                    yield reader, "it scales the integer result of a product"
                    for maker in _scale_makers(v for v in reader.inputs if v is not value):
                        yield maker, "it computes a quantisation scale"


def _scale_makers(values: Iterable[ir.Value | None]) -> Iterator[ir.Node]:
    """Products of scales, which may be below FP16's range."""
    stack = list(values)
    while stack:
        value = stack.pop()
        node = value.producer() if value is not None else None
        if node is not None and node.op_type in MOVES | {"Mul", "Div"}:
            yield node
            stack += node.inputs


def long_sums(view: View) -> Iterator[tuple[ir.Node, str]]:
    """Sums of very many terms, and what reads them up to the division by their number."""
    for node in view.order:
        if node.op_type not in ("ReduceSum", "ReduceL1") or not view.wide(node.inputs[0]):
            continue
        before, after = (_elements(v) for v in (node.inputs[0], node.outputs[0]))
        if before and after and before / after >= _LONG:
            yield node, f"it sums {before // after} terms"
            for reader in out_of_range(view, node, before / after):
                yield reader, "it reads a sum of very many terms"


def _elements(value: ir.Value | None) -> int | None:
    if value is None or value.shape is None:
        return None
    sizes = [d for d in value.shape if isinstance(d, int)]
    return math.prod(sizes) if len(sizes) == len(value.shape) else None


def carried_sums(view: View) -> Iterator[tuple[ir.Node, str]]:
    """What adds to a value that a Loop or Scan carries from turn to turn, and the node that carries it."""
    for node in view.order:
        body = next((graph for name, graph in attribute_graphs(node) if name == "body"), None)
        if body is None or node.op_type not in ("Loop", "Scan") or (_turns(view, node) or _FEW + 1) <= _FEW:
            continue
        loop = node.op_type == "Loop"
        states = len(node.inputs) - (2 if loop else node.attributes["num_scan_inputs"].as_int())
        before = body.inputs[2 : 2 + states] if loop else body.inputs[:states]
        after = body.outputs[1 : 1 + states] if loop else body.outputs[:states]
        for carried, result in zip(before, after, strict=False):
            adds = list(_adds_between(carried, result)) if view.wide(carried) else []
            for add in adds:
                yield add, "it adds to a value that is carried from turn to turn"
            if adds:
                yield node, "it carries a sum from turn to turn"


def _turns(view: View, node: ir.Node) -> int | None:
    """How often a body runs, where that is written in the model."""
    if node.op_type == "Loop":
        count = node.inputs[0]
        tensor = count.const_value if count is not None and count.is_initializer() else None
        return int(tensor.numpy().reshape(-1)[0]) if tensor is not None and tensor.size == 1 else None
    scanned, axes = node.inputs[-1], node.attributes.get("scan_input_axes")
    if scanned is None or scanned.shape is None or axes is not None:
        return None
    size = scanned.shape[0] if len(scanned.shape) else None
    return size if isinstance(size, int) else None


def _adds_between(carried: ir.Value, result: ir.Value) -> Iterator[ir.Node]:
    """The additions on the way from a carried value to its next one, where nothing else is on it."""
    stack: list[tuple[ir.Value, tuple[ir.Node, ...]]] = [(result, ())]
    steps = 0
    while stack and steps < _FARTHEST:
        steps += 1
        value, adds = stack.pop()
        if value is carried:
            yield from adds
            continue
        node = value.producer()
        if node is None or node.op_type not in MOVES | {"Add", "Sub", "Sum", "Cast"}:
            continue
        mine = (*adds, node) if node.op_type in ("Add", "Sub", "Sum") else adds
        stack += [(v, mine) for v in node.inputs if v is not None]
