"""A contiguous part of a tensor that an element-wise operator overwrites: Slice or Split between computed values.

Inside a fused graph, DirectML makes no copy for a Slice if its elements are contiguous in memory and begin at a
multiple of 16 bytes. It also lets an element-wise operator overwrite an input without other readers. It refuses both
together with E_INVALIDARG. If there are Transposes before and after the Slice, DirectML moves them behind it, which
changes the axes that are contiguous.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from dmlprep.directml.quirks.declaring import MEASURED, Edit, Match, NodeFacts, Quirk, Value
from dmlprep.directml.quirks.patterns import FUSION_HELPER, does_nothing, readers
from dmlprep.graph.rewriting.builder import move_readers

_ALIGNED = 16
"""Alignment in bytes. Measured in FP32 at 0, 4, 8, 12, 16, 24, 32 bytes and more; other types at multiples of 16 only.
"""

# fmt: off
_UNARY = frozenset({
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu", "Clip", "Cos", "Cosh",
    "CumSum", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "LeakyRelu", "Log", "Neg", "Not", "Reciprocal", "Relu",
    "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
    "ThresholdedRelu",
})
_BINARY = frozenset({
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Max", "Mean", "Min", "Mod", "Mul", "Or",
    "PRelu", "Pow", "Sub", "Sum", "Xor",
})
# fmt: on
"""Operators of two operands that overwrite an input. Operators that DirectML composes of several, or that change the
type, do not: Mish, HardSwish, Cast, comparisons, Where, normalizations."""

_RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})
_CARRY = (_UNARY | _BINARY | {"Concat", "Pad", "Slice", "Softmax", "LogSoftmax", "Tile", "Mish", "HardSwish"}) - {
    "CumSum"
}
"""Operators that DirectML moves Transposes past."""

_LET_MEET = ("Gather", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "Squeeze", "Unsqueeze")
"""Further operators after a part that let the Transposes reach the next Transpose."""

_HELD = Match("; a Reshape after it might block the Transposes", sure=False)
"""The match of a part for which it is unknown whether DirectML moves Transposes past it: a Reshape might block them."""


class _Fused:
    """One fused graph: the values it computes, their readers there, and the order of their axes in memory."""

    def __init__(self, partitions: Mapping[int, int], own: int) -> None:
        self.partitions = partitions
        self.own = own
        self._orders: dict[int, tuple[int, ...]] = {}

    def has(self, node: NodeFacts | None) -> bool:
        return node is not None and self.partitions.get(id(node)) == self.own

    def reader(self, value: Value) -> NodeFacts | None:
        """The only node that reads a value, if it is in this fused graph and reads it once; ``None`` otherwise.

        Unused nodes do not count, and nodes that do nothing are passed.
        """
        if _is_output(value):
            return None
        live = [n for n in readers(value) if any(v is not None and (v.graph_output or v.consumers) for v in n.outputs)]
        if len(live) != 1 or not self.has(live[0]) or any(n.graph != live[0].graph for n in value.consumers):
            return None
        return live[0] if sum(v is not None and _source(v) is _source(value) for v in live[0].inputs) == 1 else None

    def computed(self, value: Value | None, moved: bool = False) -> bool:
        """Return whether this fused graph computes the value, so that it is not only a view of an input.

        With ``moved``, a Transpose counts as a view, too. The result of a DequantizeLinear does not count as computed.
        """
        views = _RESHAPES | ({"Expand", "Transpose"} if moved else {"Expand"})
        value = _source(value)
        while value is not None and self.has(value.producer):
            assert value.producer is not None
            if value.producer.op not in views:
                return value.producer.op != "DequantizeLinear"  # ONNX Runtime moves it behind the part
            value = _source(value.producer.input(0))
        return False

    def order(self, value: Value) -> tuple[int, ...]:
        """The axes of a value that are longer than 1, in their order in memory, the slowest first.

        The order assumes that DirectML moves Transposes behind their readers.
        """
        value = _source(value) or value
        if id(value) not in self._orders:
            self._orders[id(value)] = plain = tuple(a for a, n in enumerate(value.sizes) if n != 1)
            node = value.producer
            if node is not None and self.has(node) and not _is_output(value):
                self._orders[id(value)] = self._moved(node, value) or plain
        return self._orders[id(value)]

    def _moved(self, node: NodeFacts, value: Value) -> tuple[int, ...] | None:
        source = _source(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
        if source is None:
            return None
        if node.op == "Transpose":
            permutation = list(node.attribute("perm", range(len(value.sizes))[::-1]))
            return tuple(permutation.index(axis) for axis in self.order(source))
        direct = source.producer is not None and source.producer.op in ("Transpose", *_RESHAPES)
        if node.op in ("Squeeze", "Unsqueeze") or (node.op in _RESHAPES and direct):
            return _split_axes(self.order(source), source.sizes, value.sizes)
        if node.op not in _CARRY:
            return None
        inputs = [v for v in map(_source, node.inputs) if v is not None]
        if node.op != "Concat":
            inputs = [v for v in inputs if not v.constant and _spans(v, value)]
        votes = [self.order(v) for v in inputs]
        chosen = next((o for o in votes if 2 * votes.count(o) > len(votes)), ())
        return (*chosen, *[a for a, n in enumerate(value.sizes) if n != 1 and a not in chosen]) if chosen else None

    def _lets_meet(self, node: NodeFacts, value: Value) -> bool:
        out = node.output()
        if node.op in _LET_MEET or out is None or node.op not in _CARRY:
            return node.op in _LET_MEET
        own_order = self.order(value)
        if node.op == "Concat" and len({id(_source(v)) for v in node.inputs}) < len(node.inputs):
            return False
        return self.order(out)[: len(own_order)] == own_order

    def moves_on(self, value: Value) -> bool:
        """Return whether a Transpose behind a value absorbs the Transposes that DirectML moves past the value."""
        stack, visited = [value], {value}
        while stack:
            current = stack.pop()
            for node in filter(self.has, readers(current)):
                if node.op == "Transpose":
                    return True
                new = set(filter(None, node.outputs if self._lets_meet(node, current) else ())) - visited
                visited |= new
                stack += new
        return False

    def held(self, value: Value) -> tuple[bool, bool]:
        """Return whether a Reshape is between a value and a Transpose, and whether it may count as a Transpose itself.

        DirectML treats a Reshape that moves a size of 1 as a Transpose, but not one that only drops leading ones.
        """
        held = moves = False
        stack, visited = [value], {id(value)}
        while stack:
            current = stack.pop()
            for node in readers(current):
                out = node.output()
                if not self.has(node) or out is None or id(out) in visited:
                    continue
                visited.add(id(out))
                if node.op in ("Reshape", "Flatten"):
                    if self._turned_next(out):
                        held = True
                        moves = moves or _moves_ones(current, out)
                elif self._lets_meet(node, current):
                    stack.append(out)
        return held, moves

    def _turned_next(self, value: Value) -> bool:
        """Return whether a Transpose reads a value, directly or through further Reshapes."""
        return any(
            node.op == "Transpose"
            or (node.op in _RESHAPES and (out := node.output()) is not None and self._turned_next(out))
            for node in filter(self.has, readers(value))
        )


def _moves_ones(before: Value, after: Value) -> bool:
    """Return whether a Reshape has a size of 1 behind a longer axis before it, and no more longer axes after it."""
    sizes = before.sizes
    longer = [axis for axis, size in enumerate(sizes) if size != 1]
    behind_one = bool(longer) and 1 in sizes[longer[0] :]
    return behind_one and sum(n != 1 for n in after.sizes) <= len(longer)


def _source(value: Value | None) -> Value | None:
    """The value before nodes that do nothing (Identity); the value itself if there are none."""
    while value is not None and value.producer is not None and does_nothing(value.producer):
        value = value.producer.input(0)
    return value


def _is_output(value: Value) -> bool:
    """Return whether a value is an output of the graph, directly or through nodes that do nothing."""
    stack = [value]
    while stack:
        current = stack.pop()
        if current.graph_output:
            return True
        stack += [v for n in current.consumers if does_nothing(n) for v in n.outputs if v is not None]
    return False


def _split_axes(order: tuple[int, ...], before: list[int], after: list[int]) -> tuple[int, ...] | None:
    """The order of axes in memory after a Reshape that only splits axes, or adds or removes sizes of 1.

    ``order`` is the order before it. ``None`` for any other Reshape.
    """
    parts: dict[int, list[int]] = {}
    axes = [(axis, size) for axis, size in enumerate(after) if size != 1]
    for axis, size in enumerate(before):
        if size == 1:
            continue
        parts[axis], product = [], 1
        while product < size and axes:
            product *= axes[0][1]
            parts[axis].append(axes.pop(0)[0])
        if product != size:
            return None
    return tuple(new for axis in order for new in parts[axis])


def _spans(value: Value, whole: Value) -> bool:
    """Return whether a value has the rank of another and at least as many axes longer than 1: it is not broadcast."""
    return len(value.sizes) == len(whole.sizes) and sum(n != 1 for n in value.sizes) >= sum(n != 1 for n in whole.sizes)


def _part(node: NodeFacts) -> tuple[Value, Value, list[int]] | None:
    """The data of a Slice or Split with known sizes, its only used part, and the start of the part for each axis.

    ``None`` if a size or start is unknown, if several parts are used, if the data is constant, or with strides.
    """
    data, used = _source(node.input(0)), [v for v in node.outputs if v is not None and (v.consumers or v.graph_output)]
    if data is None or len(used) != 1 or not data.static or not used[0].static or data.constant:
        return None
    starts = [0] * len(data.sizes)
    if node.op == "Split":
        axis = int(node.attribute("axis", 0)) % len(data.sizes)
        sizes = [v.sizes[axis] if v is not None and v.static else used[0].sizes[axis] for v in node.outputs]
        written = node.attribute("split") if node.input(1) is None else node.integers(1)
        starts[axis] = sum((written or sizes)[: node.outputs.index(used[0])])
        return data, used[0], starts
    listed: list[list[int] | None] = [node.attribute(name) for name in ("starts", "ends", "axes")]
    if node.since >= 10:
        listed = [node.integers(index) for index in (1, 2, 3)]
    begins, _, axes = listed
    strides = node.integers(4)
    if begins is None or (strides is None and node.input(4) is not None):
        return None
    for i, start in enumerate(begins):
        axis = (axes[i] if axes is not None else i) % len(data.sizes)
        size = data.sizes[axis]
        if strides is not None and strides[i] != 1 and used[0].sizes[axis] != 1:
            return None
        starts[axis] = min(max(start + size if start < 0 else start, 0), size)
    return data, used[0], starts


def _is_view(data: Value, part: Value, starts: list[int], order: tuple[int, ...]) -> bool:
    """Return whether the part is not the whole, is contiguous in memory, and begins at a multiple of 16 bytes."""
    sizes, cut = data.sizes, part.sizes
    if sizes == cut or not part.size:
        return False
    inner, first = 1, 0
    for axis in reversed(order):
        first += starts[axis] * inner
        inner *= sizes[axis]
    split = next(i for i, axis in enumerate((*order, -1)) if axis < 0 or cut[axis] != 1)
    together = all(cut[axis] == sizes[axis] for axis in order[split + 1 :])
    itemsize = ir.DataType[data.type.upper()].itemsize if data.type else 1 / 1024
    return together and first * itemsize % _ALIGNED == 0


def _matches(node: NodeFacts) -> str:
    overlap = _part(node)
    if overlap is None or overlap[0].graph_output or overlap[0].graph_input or overlap[0].sizes == overlap[1].sizes:
        return ""
    return f"{overlap[1].name} is a part of {overlap[0].name} that ONNX Runtime overwrites"


def _shown(node: NodeFacts, partitions: Mapping[int, int]) -> bool | Match:
    overlap = _part(node)
    own = partitions.get(id(node))
    if overlap is None or own is None:
        return False
    data, part, starts = overlap
    graph = _Fused(partitions, own)
    if graph.reader(data) is not node:
        return False
    writer, value, turned = graph.reader(part), part, False
    while writer is not None and (writer.op == "Transpose" or _is_another_view(writer)):
        turned = turned or writer.op == "Transpose"
        value = writer.outputs[0] or value
        writer = graph.reader(value)
    out = writer.output() if writer is not None else None
    if writer is None or out is None:
        return False
    orders, unsure = _orders(graph, data, part, out)
    for order in orders:
        moved = order != tuple(sorted(order))
        if (
            turned <= moved
            and (not moved or _meet(graph, writer, value))
            and graph.computed(data, moved)
            and _overwrites(graph, writer, value, moved)
            and _is_view(data, part, starts, order)
        ):
            return _HELD if unsure else True
    return False


def _orders(graph: _Fused, data: Value, part: Value, out: Value) -> tuple[list[tuple[int, ...]], bool]:
    """The possible orders of the axes of ``data`` in memory, and True if they are uncertain."""
    order = graph.order(data)
    plain = tuple(sorted(order))
    if order != plain and graph.moves_on(out):
        return [order], False
    held, moves = graph.held(out)
    if order == plain or not held:
        return [plain], False
    ones_first = tuple(sorted(plain, key=lambda axis: part.sizes[axis] != 1))
    return ([plain, order, ones_first] if moves else [plain]), True


def _meet(graph: _Fused, writer: NodeFacts, value: Value) -> bool:
    """Return whether the inputs of ``writer`` have the memory order of ``value``, after Transposes are moved.

    Constant and broadcast inputs do not count.
    """
    others = [v for v in map(_source, writer.inputs) if v is not None and not v.constant and _spans(v, value)]
    return all(graph.order(v) == graph.order(value) for v in others)


def _is_another_view(node: NodeFacts) -> bool:
    """Return whether a node only adds or removes leading sizes of 1, or forwards its input unchanged."""
    source, out = node.input(0), node.output()
    if source is None or out is None or not source.static or not out.static:
        return False
    if node.op not in _RESHAPES:
        return node.op in ("Slice", "Expand") and source.sizes == out.sizes
    short, long = sorted((source.sizes, out.sizes), key=len)
    return long == [1] * (len(long) - len(short)) + short


def _overwrites(graph: _Fused, node: NodeFacts, value: Value, moved: bool) -> bool:
    """Return whether ``value`` is the input that DirectML lets the node overwrite: the last one that it can."""
    out = node.output()
    inputs = [v for v in node.inputs if v is not None]
    known = node.op == "Clip" or node.op in (_BINARY if len(inputs) == 2 else _UNARY)
    if out is None or out.type != value.type or not known:
        return False
    makers = [v.producer for v in inputs if v.sizes == out.sizes and v.rank == 2 and v.producer is not None]
    if node.op == "Add" and any(maker.op == "MatMul" for maker in makers):
        return False  # ONNX Runtime fuses both into a Gemm
    for candidate in reversed(inputs):
        same = candidate.sizes == out.sizes
        if _source(candidate) is _source(value):
            return same
        maker = candidate.producer
        strided = maker is not None and maker.op in ("Slice", "Split")
        if same and not strided and graph.computed(candidate, moved) and graph.reader(candidate) is node:
            return False
    return False


def _rewrite(facts: NodeFacts, edit: Edit) -> str:
    """Copy the part by a Concat with one input: then no node overwrites a part of another tensor."""
    overlap = _part(facts)
    assert overlap is not None
    old = next(v for v in edit.node.outputs if v.name == overlap[1].name)
    copy = edit.new_value("part", old.type, old.shape)
    edit.graph.insert_after(edit.node, edit.new_node("Concat", [old], [copy], "concat", {"axis": 0}))
    move_readers(old, copy)
    copy.producer().replace_input_with(0, old)  # type: ignore[union-attr]
    return ""


QUIRK = Quirk(
    id="part-in-place",
    code="DP645",
    title="a part of a tensor that is overwritten",
    ops=("Slice", "Split"),
    outcome="create fails",
    sources=(MEASURED, FUSION_HELPER),
    matches=_matches,
    fused=lambda nodes, partitions: [_shown(node, partitions) for node in nodes],
    rewrite=_rewrite,
)
