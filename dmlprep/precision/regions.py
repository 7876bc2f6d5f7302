"""Stretches of a graph that are known to go wrong in FP16."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from dmlprep.model.walk import attribute_graphs
from dmlprep.precision.view import MOVES, View, scalar

__all__ = [
    "coordinates",
    "crashing_transposes",
    "integers",
    "log_sums",
    "own_islands",
    "phases",
    "quantised",
    "refused_squares",
    "squares",
]

_ELEMENTWISE = frozenset(
    """
    Abs Add Ceil Clip Cos Div Exp Floor Log Max Mean Min Mod Mul Neg Pow Reciprocal Round Sigmoid Sign
    Sin Sqrt Sub Sum Where Cast CastLike Range ConstantOfShape Relu Tanh
    """.split()  # noqa: SIM905 - a list of a hundred names reads better as words
)
_COMPARES = frozenset(
    """
    Equal Greater GreaterOrEqual Less LessOrEqual IsNaN IsInf
    """.split()  # noqa: SIM905 - a list of a hundred names reads better as words
)
_SMALL = 4096  # elements: a constant that may take part in arithmetic on positions; a weight has more


def own_islands(view: View) -> Iterator[tuple[ir.Node, str]]:
    """Nodes that compute in FP32 on values that the model casts up from FP16 itself."""
    inside: set[ir.Value] = set()
    found: dict[ir.Node, None] = {}
    size = -1
    while len(inside) > size:  # again where a body hands such a value to the node that holds it
        size = len(inside)
        for node in view.order:
            wide = [v for v in node.outputs if view.wide(v)]
            if node.op_type == "Cast":
                kind = view.types.get(node.inputs[0]) if node.inputs[0] is not None else None
                half = isinstance(kind, ir.TensorType) and kind.dtype == ir.DataType.FLOAT16
                stored = view.constant(node.inputs[0]) is not None  # a weight kept in FP16 to save room
                if (half and not stored) or node.inputs[0] in inside:
                    inside.update(wide)
                continue
            handed = any(v in inside for _, graph in attribute_graphs(node) for v in graph.outputs)
            if handed or any(v in inside for v in node.inputs):
                inside.update(wide)
                found.setdefault(node)
    for node in found:
        yield node, "reads a value that the model casts from FP16 to FP32"


def quantised(view: View) -> Iterator[tuple[ir.Node, str]]:
    """Quantize and dequantize nodes, and what computes on dequantised values."""
    for node in view.order:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"):
            yield node, "it holds a quantisation scale"
            if node.op_type != "DynamicQuantizeLinear":
                for maker in _makers(node.inputs[1:3]):
                    yield maker, "it computes a quantisation scale"
        elif node.op_type not in ("Cast", "CastLike") and view.is_float(node):
            for value in node.inputs:
                producer = value.producer() if value is not None else None
                if producer is not None and producer.op_type == "DequantizeLinear":
                    yield node, "its operands are quantised"
                    break


_MAKES_SCALES = _ELEMENTWISE | MOVES | {"ReduceMax", "ReduceMin"}


def _makers(values: Iterable[ir.Value | None]) -> Iterator[ir.Node]:
    """The arithmetic that values are made by, up to what is more than arithmetic."""
    stack, seen = list(values), set[ir.Node]()
    while stack:
        value = stack.pop()
        node = value.producer() if value is not None else None
        if node is not None and node not in seen and node.op_type in _MAKES_SCALES:
            seen.add(node)
            yield node
            stack += node.inputs


def log_sums(view: View) -> Iterator[tuple[ir.Node, str]]:
    """Log of a ReduceSum of Exp, where the argument of Exp is not a difference from a maximum."""
    for node in view.order:
        if node.op_type != "Log" or not view.is_float(node):
            continue
        sums = _through_moves(node.inputs[0])
        if sums is None or sums.op_type != "ReduceSum":
            continue
        exp = _through_moves(sums.inputs[0])
        if exp is None or exp.op_type != "Exp":
            continue
        shifted = _through_moves(exp.inputs[0])
        if shifted is None or shifted.op_type != "Sub":
            for part in (exp, sums, node):
                yield part, "an exponential whose sum's logarithm is taken"


def _through_moves(value: ir.Value | None) -> ir.Node | None:
    """What makes a value, movements and casts left out."""
    node = value.producer() if value is not None else None
    while node is not None and (node.op_type in MOVES or node.op_type == "Cast") and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node


def _from_integers(view: View, also: Iterable[ir.Value] = (), through: frozenset[str] = frozenset()) -> set[ir.Value]:
    """Floating values that come from integers, from ``also`` and small constants alone: sizes, positions, masks.

    ``through`` names operators that count as arithmetic, too.
    """
    found: set[ir.Value] = set(also)
    for node in view.order:
        small_product = node.op_type in ("MatMul", "Einsum", "Gemm")
        if node.op_type not in _ELEMENTWISE | MOVES | through and not small_product:
            continue
        if not any(view.wide(v) for v in node.outputs):
            continue
        wide = [v for _, v, _ in view.wide_inputs(node)]
        if node.op_type in ("Cast", "CastLike") and not wide:
            source = view.types.get(node.inputs[0]) if node.inputs[0] is not None else None
            if isinstance(source, ir.TensorType) and source.dtype.is_integer():
                found.update(node.outputs)
            continue
        if node.op_type == "Range":
            found.update(node.outputs)
            continue
        whole = [v for v in wide if v in found]
        rest = [v for v in wide if v not in found]
        if whole and all(_small_constant(view, v) for v in rest):
            found.update(node.outputs)
    return found


def _small_constant(view: View, value: ir.Value) -> bool:
    # Movements of constants count as constants: an inverse frequency is often unsqueezed or expanded first.
    for _ in range(8):
        tensor = view.constant(value)
        if tensor is not None:
            return bool(tensor.size <= _SMALL)
        producer = value.producer()
        if producer is None:
            return False
        if producer.op_type == "ConstantOfShape":
            return True
        if producer.op_type not in MOVES or not producer.inputs or producer.inputs[0] is None:
            return False
        value = producer.inputs[0]
    return False


def _upstream(ends: list[ir.Value], inside: set[ir.Value]) -> set[ir.Node]:
    found: set[ir.Node] = set()
    stack = [v for v in ends if v in inside]
    while stack:
        producer = stack.pop().producer()
        if producer is None or producer in found:
            continue
        found.add(producer)
        stack += [v for v in producer.inputs if v is not None and v in inside]
    return found


def integers(view: View) -> Iterator[tuple[ir.Node, str]]:
    """Arithmetic on whole numbers in floats whose result is an integer, a comparison or a size again."""
    inside = _from_integers(view)
    ends: list[ir.Value] = []
    last: list[ir.Node] = []
    for node in view.order:
        if node.op_type == "Cast" and not any(view.wide(v) for v in node.outputs):
            kind = view.types.get(node.outputs[0])
            if isinstance(kind, ir.TensorType) and kind.dtype.is_integer():
                ends += [v for _, v, _ in view.wide_inputs(node)]
        elif node.op_type in _COMPARES:
            mine = [v for _, v, _ in view.wide_inputs(node) if v in inside]
            if mine:
                ends += mine
                last.append(node)
        else:
            ends += [v for _, v, port in view.wide_inputs(node) if port is not None and not port.variable]
    for node in (*_upstream(ends, inside), *last):
        if node.op_type != "Cast" or any(view.wide(v) for v in node.inputs):
            yield node, "it computes on sizes, positions or indices"
        else:
            yield node, "it turns integers into numbers that become integers again"


_PHASE_STEPS = frozenset({"CumSum", "Resize", "Upsample"})
"""What lies between a frequency and the angle of its sine, besides arithmetic."""


def phases(view: View) -> Iterator[tuple[ir.Node, str]]:
    """Sin and Cos of positions, and what leads to them.

    A floating input may be one (the time step of a diffusion), and so is a running sum: the phase of a sine whose
    frequency changes (a vocoder's source), which grows with the length of the signal.
    """
    starts = [v for v in view.model.graph.inputs if view.wide(v)]
    starts += [v for node in view.order if node.op_type == "CumSum" for v in node.outputs if view.wide(v)]
    inside = _from_integers(view, starts, _PHASE_STEPS)
    ends = [node for node in view.order if node.op_type in ("Sin", "Cos") and view.is_float(node)]
    for node in ends:
        yield node, "its argument is an angle"
    for node in _upstream([v for n in ends for v in n.inputs if v is not None], inside):
        yield node, "it computes the angle of Sin or Cos from a position"


def squares(view: View) -> Iterator[tuple[ir.Node, str]]:
    """A square, the mean or sum of it, and the way to the root: what a decomposed normalisation is made of."""
    for node in view.order:
        if not _is_square(view, node):
            continue
        means = [
            n for n in node.outputs[0].consumers() if n.op_type in ("ReduceMean", "ReduceSum", "GlobalAveragePool")
        ]
        if not means:
            continue
        yield node, "a square whose mean is taken"
        for mean in means:
            yield mean, "the mean of a square"
            yield from _to_the_root(view, mean.outputs[0])


def refused_squares(view: View) -> Iterator[tuple[ir.Node, str]]:
    """The squares of decomposed LayerNormalizations, and of decomposed RMSNormalizations where there are several."""
    centred: list[ir.Node] = []
    plain: list[ir.Node] = []
    for node in view.order:
        if not _is_square(view, node):
            continue
        way = [step for mean in node.outputs[0].consumers() for step, _ in _to_the_root(view, mean.outputs[0])]
        if any(step.op_type in ("Sqrt", "Pow") for step in way):
            made_by = _through_moves(node.inputs[0])
            (centred if made_by is not None and made_by.op_type == "Sub" else plain).append(node)
    for node in centred:
        yield node, "the square in a decomposed LayerNormalization"
    # One exponent alone is fused rightly; the cast of one that several share is not found again.
    powers = [node for node in plain if node.op_type == "Pow"]
    for node in powers if len(powers) + len(centred) > 1 else ():
        yield node, "the square in one of several decomposed RMSNormalizations"


def _is_square(view: View, node: ir.Node) -> bool:
    if node.op_type == "Mul":
        return node.inputs[0] is node.inputs[1] and view.wide(node.inputs[0])
    return node.op_type == "Pow" and view.wide(node.inputs[0]) and scalar(view.constant(node.inputs[1])) == 2.0


def _to_the_root(view: View, value: ir.Value) -> Iterator[tuple[ir.Node, str]]:
    stack, seen = [value], 0
    while stack and seen < 16:
        seen += 1
        for node in stack.pop().consumers():
            if node.op_type in ("Sqrt", "Pow", "Reciprocal", "Log"):
                yield node, "the root of a mean of squares"
            elif (
                node.op_type in ("Add", "Mul", "Div", "Sub", "Max", "Clip")
                and any(view.constant(v) is not None for v in node.inputs)
            ) or node.op_type in MOVES:
                yield node, "on the way from a mean of squares to its root"
                stack += node.outputs


_BOX_ARITHMETIC = _ELEMENTWISE | MOVES
_BOX_READERS = {"NonMaxSuppression": (0,), "RoiAlign": (1,), "MaxRoiPool": (1,)}


def coordinates(view: View) -> Iterator[tuple[ir.Node, str]]:
    """The element-wise arithmetic that makes boxes out of a network's outputs, up to the first real layer."""
    for reader in view.order:
        for index in _BOX_READERS.get(reader.op_type, ()):
            value = reader.inputs[index] if index < len(reader.inputs) else None
            stack, seen = [value], set[ir.Node]()
            while stack:
                value = stack.pop()
                producer = value.producer() if value is not None else None
                if producer is None or producer in seen or producer.op_type not in _BOX_ARITHMETIC:
                    continue
                if not any(view.wide(v) for v in producer.outputs):
                    continue
                seen.add(producer)
                if producer.op_type not in ("Cast", "Constant"):
                    yield producer, f"it computes coordinates for {reader.op_type}"
                stack += [v for _, v, _ in view.wide_inputs(producer)]


def crashing_transposes(view: View) -> Iterator[tuple[ir.Node, str]]:
    """A Transpose that moves the first axis and leaves the last (``[1, 0, 2]``), and leads into a MatMul."""
    for node in view.order:
        perm = node.attributes.get("perm")
        if node.op_type != "Transpose" or perm is None:
            continue
        order = list(perm.as_ints())
        if len(order) < 3 or order[0] == 0 or order[-1] != len(order) - 1:
            continue
        readers = [n for v in node.outputs for n in v.consumers()]
        readers += [m for n in readers if n.op_type in MOVES for v in n.outputs for m in v.consumers()]
        if any(n.op_type in ("MatMul", "Gemm") for n in readers) and view.wide(node.inputs[0]):
            yield node, "it moves the first axis before a MatMul"
