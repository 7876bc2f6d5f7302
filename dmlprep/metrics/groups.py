"""Divide the outputs of a model into groups that are compared together, each by a rule: for search, proof and kit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.graph.model.constants import held_tensor
from dmlprep.graph.model.walk import attribute_graphs
from dmlprep.portable.comparison import OutputGroup
from dmlprep.portable.steep import STEEP

DATA_DEPENDENT = frozenset({"NonMaxSuppression", "NonZero", "Unique", "Compress"})
"""Operators whose number of output rows depends on the values of their inputs."""


def data_dependent(model: Model) -> frozenset[str]:
    """Return the names of values of the main graph whose number of rows depends on data, or that depend on such values.

    FP16 may select other rows than FP32, so these values have no element-by-element comparison.
    """
    names: set[str] = set()
    for node in model.ir.graph:
        if node.op_type in DATA_DEPENDENT or any(v is not None and v.name in names for v in node.inputs):
            names.update(v.name for v in node.outputs if v.name)
    return frozenset(names)


_MOVES = frozenset(
    {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Cast", "Gather", "Split",
     "Resize", "Upsample", "Pad", "Clip", "ReduceMean", "ReduceMax", "AveragePool", "MaxPool"}
)  # fmt: skip
"""Operators after which probabilities are still probabilities: they forward, move or interpolate values."""

_MAKES = {"Sigmoid": "map", "HardSigmoid": "map", "Softmax": "classes", "LogSoftmax": "logits"}
_READS_LOGITS = frozenset({"Softmax", "LogSoftmax", "ArgMax"})


KINDS = ("elements", "map", "classes", "logits", "angle")
"""The kinds of outputs that users can set."""


def output_groups(model: Model, kinds: Mapping[str, str] | None = None) -> list[OutputGroup]:
    """Divide the outputs into groups, and return them: first single outputs and sets of rows, then rankings.

    Outputs form a set of rows if they depend on the same nodes that choose rows (such as NonMaxSuppression), and have
    the same dynamic first dimension. Outputs that depend on the same TopK of more than one row form a ranking. A group
    is never both. Every other output is a group of its own. Its kind says how it is compared: steep outputs are
    ``map``, ``classes`` or ``logits``, all others ``elements``.

    Args:
        kinds: the kinds that the user sets, by output: ``elements``, ``map``, ``classes``, ``logits`` or ``angle``. In
            sets of rows and rankings, they have no effect.
    """
    outputs = {value.name or "": value for value in model.ir.graph.outputs}
    by_name = {name: _steep_kind(value) for name, value in outputs.items()}
    steep = {name: kind for name, kind in by_name.items() if kind in STEEP} | dict(kinds or {})
    images = integer_images(model)
    sets = _sets_of_rows(model)
    grouped_names = {name for names in sets for name in names}
    ranked = [(names, count) for names, count in _rankings(model) if grouped_names.isdisjoint(names)]
    grouped_names.update(name for names, _ in ranked for name in names)
    by_first = {names[0]: OutputGroup(names, "rows") for names in sets}
    groups = []
    for name in dict.fromkeys(v.name or "" for v in model.ir.graph.outputs):
        if name in by_first:
            groups.append(by_first[name])
        elif name not in grouped_names:
            kind = cast(Any, steep.get(name, "elements"))
            rounded = (name,) if name in images else ()
            if kind == "angle" or name not in steep:
                turn = _turn(outputs[name]) or (2 * math.pi if kind == "angle" else 0.0)
                groups.append(OutputGroup((name,), integer_images=rounded, turn=turn))
            else:
                groups.append(OutputGroup((name,), kind, integer_images=rounded))
    return [*groups, *(OutputGroup(names, "ranked", count) for names, count in ranked)]


def _sets_of_rows(model: Model) -> list[tuple[str, ...]]:
    input_dims = {str(d) for i in model.ir.graph.inputs if i.shape is not None for d in i.shape.dims}
    groups: dict[object, list[str]] = {}
    for value in model.ir.graph.outputs:
        first = value.shape[0] if value.shape is not None and len(value.shape) else None
        dimension = first.value if isinstance(first, ir.SymbolicDim) else first
        fixed = isinstance(dimension, int) or (dimension is not None and dimension in input_dims)
        nodes = set() if fixed else _nearest(value, lambda node: node.op_type in DATA_DEPENDENT)
        if nodes:
            groups.setdefault((frozenset(nodes), str(dimension)), []).append(value.name or "")
    return [tuple(names) for names in groups.values()]


def _rankings(model: Model) -> list[tuple[tuple[str, ...], int | None]]:
    """Return groups of outputs that depend on the same TopK of more than one row.

    Each group has the names of its outputs, and the number of rows that TopK chooses; ``None`` if it is unknown.
    """
    groups: dict[frozenset[ir.Node], list[str]] = {}
    for value in model.ir.graph.outputs:
        nodes = _nearest(value, lambda node: node.op_type == "TopK" and node.domain in ("", "ai.onnx"))
        if nodes:
            groups.setdefault(frozenset(nodes), []).append(value.name or "")
    counts = {chosen: {_count(node) for node in chosen} for chosen in groups}
    return [
        (tuple(names), next(iter(counts[chosen])) if len(counts[chosen]) == 1 else None)
        for chosen, names in groups.items()
        if counts[chosen] != {1}
    ]


def _nearest(value: ir.Value, wanted: Callable[[ir.Node], bool]) -> set[ir.Node]:
    """Go back from a value, and return the first node on each way for which ``wanted`` is true."""
    nearest: set[ir.Node] = set()
    visited: set[ir.Node] = set()
    stack = [value]
    while stack:
        node = stack.pop().producer()
        if node is None or node in visited:
            continue
        visited.add(node)
        if wanted(node):
            nearest.add(node)
            continue
        stack.extend(v for v in node.inputs if v is not None)
        for _, graph in attribute_graphs(node):
            stack.extend(graph.outputs)
    return nearest


def _count(node: ir.Node) -> int | None:
    if (attribute := node.attributes.get("k")) is not None:
        return attribute.as_int()
    axis = node.attributes.get("axis")
    shape = node.outputs[0].shape
    place = axis.as_int() if axis is not None else -1
    if shape is not None and -len(shape) <= place < len(shape) and isinstance(size := shape[place], int):
        return size
    known = held_tensor(node.inputs[1]) if len(node.inputs) > 1 else None
    return int(known.numpy().item()) if known is not None and known.size == 1 else None


def _source(value: ir.Value, through: frozenset[str]) -> ir.Value:
    """Go back from a value along first inputs, while the operator is in ``through``, and return the value there."""
    node = value.producer()
    while node is not None and node.op_type in through and node.inputs and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def _steep_kind(value: ir.Value) -> str:
    if "logit" in (value.name or "").lower() or any(n.op_type in _READS_LOGITS for n in value.consumers()):
        return "logits"
    value = _source(value, _MOVES)
    node = value.producer()
    if node is None or node.domain not in ("", "ai.onnx"):
        return ""
    if node.op_type == "If":
        place = value.index() or 0
        kinds = {_steep_kind(graph.outputs[place]) for _, graph in attribute_graphs(node)}
        return kinds.pop() if len(kinds) == 1 else ""
    return _MAKES.get(node.op_type, "")


_PLACES = frozenset({"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather", "Cast"})
_CHOOSES = frozenset({"Where", "Add", "Sub", "Mul", "Neg", "Identity", "Cast"})


def _turn(value: ir.Value) -> float:
    """If a value is an angle over the whole circle, return a whole turn in its unit (2 pi, 360); otherwise 0.

    ONNX has no Atan2. Exporters write an Atan, and nodes that add pi to it or subtract pi.
    """
    turn = 2 * math.pi
    while (node := value.producer()) is not None and node.domain in ("", "ai.onnx"):
        free = [v for v in node.inputs if v is not None and held_tensor(v) is None]
        number = next((n for v in node.inputs if v is not None and (n := _number(v)) is not None), None)
        if node.op_type in _PLACES or node.op_type == "Neg":
            following = node.inputs[0]
        elif node.op_type in ("Add", "Sub") and len(free) == 1 and number is not None:
            following = free[0]
        elif (
            node.op_type in ("Mul", "Div")
            and number
            and len(free) == 1
            and (node.op_type == "Mul" or free[0] is node.inputs[0])
        ):
            turn = abs(turn * number if node.op_type == "Mul" else turn / number)
            following = free[0]
        elif node.op_type == "Where" and number is not None:  # NaN becomes 0
            following = next((v for v in node.inputs[1:] if v in free), None)
        else:
            return turn if node.op_type in ("Where", "Add", "Sub") and _adds_pi_to_atan(value) else 0.0
        if following is None:
            return 0.0
        value = following
    return 0.0


def _adds_pi_to_atan(value: ir.Value) -> bool:
    stack, visited, kinds = [value], set[ir.Value](), set[str]()
    while stack:
        one = stack.pop()
        if one in visited:
            continue
        visited.add(one)
        number, node = _number(one), one.producer()
        if number is not None and abs(abs(number) - math.pi) < 2e-3:
            kinds.add("pi")
        elif node is not None and node.op_type in _CHOOSES:
            stack += [v for v in node.inputs[1 if node.op_type == "Where" else 0 :] if v is not None]
        elif node is not None:
            kinds.add(node.op_type)
    return kinds >= {"pi", "Atan"}


def _number(value: ir.Value) -> float | None:
    tensor = held_tensor(value)
    return (
        float(tensor.numpy().item())
        if tensor is not None and tensor.size == 1 and tensor.dtype.is_floating_point()
        else None
    )


_NARROW = frozenset({ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.UINT16, ir.DataType.INT16})
"""Types in which images and sounds are stored; indices and counts are wider."""

_HANDS_ON = frozenset(
    {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Concat", "Clip", "Min", "Max"}
)
_ARITHMETIC = _HANDS_ON | {"Add", "Sub", "Mul", "Div", "Round", "Floor", "Ceil", "Resize", "Where", "Relu", "Pad"}


def integer_images(model: Model) -> frozenset[str]:
    """Return the names of the outputs that are rounded floating-point numbers, such as pictures of bytes.

    They are results of Round, Floor and Ceil, and integers of 8 or 16 bits that are cast or quantised from floats.
    Numbers that come from integers in the graph (ArgMax cast to float and back) are not included.
    """
    return frozenset(v.name or "" for v in model.ir.graph.outputs if _rounded(v))


def _rounded(value: ir.Value) -> bool:
    hands_on = _HANDS_ON if value.dtype in _NARROW else _HANDS_ON - _COMBINES
    node = _source(value, hands_on).producer()
    if node is None or not node.inputs or node.inputs[0] is None or node.domain not in ("", "ai.onnx"):
        return False
    narrow = node.op_type in ("Cast", "QuantizeLinear") and value.dtype in _NARROW
    return (narrow or node.op_type in _ROUNDS) and not _was_integer(node.inputs[0])


_ROUNDS = frozenset({"Round", "Floor", "Ceil"})
_COMBINES = frozenset({"Add", "Sub", "Mul", "Div", "Min", "Max", "Where", "Concat"})
_MAKES_INTEGERS = frozenset(
    {"ArgMax", "ArgMin", "TopK", "NonZero", "NonMaxSuppression", "Shape", "Size", "Unique", "OneHot", "Bernoulli",
     "Multinomial", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not", "IsNaN",
     "IsInf", "Range", "MatMulInteger", "ConvInteger"}
)  # fmt: skip
"""Operators whose results are classes, indices or flags. The operators count, because files may lack inner types."""


def _was_integer(value: ir.Value) -> bool:
    """Return whether a value is computed from classes, indices or flags, and so is still one of these."""
    stack, visited = [value], set[ir.Value]()
    while stack:
        one = stack.pop()
        node = one.producer()
        if node is None or one in visited:
            continue
        visited.add(one)
        if node.op_type in _MAKES_INTEGERS:
            return True
        if node.op_type in _COMBINES:
            stack += [v for v in node.inputs if v is not None]
        elif (node.op_type == "Cast" or node.op_type in _ARITHMETIC) and node.inputs[0] is not None:
            stack.append(node.inputs[0])  # the other inputs are sizes and positions
    return False
