"""Shape arithmetic where some sizes are still free: vectors of polynomials instead of numbers.

``Concat(Shape(x)[0], 12, -1)`` is known as ``[batch, 12, -1]`` before the batch is known. So the Reshape that reads it
has a shape, and values that depend on the fixed sizes fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import add, mul, sub

import numpy as np
import onnx_ir as ir

from dmlprep.graph.analysis.folding import Array, Uncertain, slice_of
from dmlprep.graph.analysis.knowledge import Element, Elements, Knowledge, Known
from dmlprep.graph.analysis.polynomial import Polynomial, floor_divide, of_name, of_number
from dmlprep.graph.model.dims import Dim
from dmlprep.graph.model.texts import cast_target

_LONGEST = 64


def elements(known: Known, value: ir.Value | None) -> Elements | None:
    """Return the elements of a small integer value, as far as they are known; ``None`` if no element is known."""
    if value is None:
        return None
    array = known.constants.get(value)
    if array is None:
        return known.partial.get(value)
    if array.dtype.kind not in "iu" or array.ndim > 1 or array.size > _LONGEST:
        return None
    return array.ndim == 1, tuple(of_number(int(v)) for v in array.reshape(-1))


def known_in_parts(knowledge: Knowledge, value: ir.Value) -> tuple[Dim, ...] | None:
    """Return the elements of a vector of sizes, traced back through its producers, without a walk over the model.

    Returns:
        for each element a number, an expression with names of free sizes, or ``None``. An expression is surely 0 or
            more; a size without a name has the name ``VALUE.AXIS`` in it. The whole is ``None`` if no element is known,
            or if the value is not a vector.
    """
    known = Known(knowledge.model, knowledge.types)
    _read_back(known, knowledge, value, set())
    vector, items = elements(known, value) or (False, ())
    names = [None if e is None or e.at_least is None or e.at_least < 0 else str(e) for e in items]
    sizes = tuple(n if e is None or e.number is None else e.number for e, n in zip(items, names, strict=True))
    return sizes if vector else None


def _read_back(known: Known, knowledge: Knowledge, value: ir.Value, asked: set[ir.Value]) -> None:
    if value in asked or len(asked) >= _LONGEST:
        return
    asked.add(value)
    array, node = knowledge.constant(value), value.producer()
    if array is not None:
        known.constants[value] = array
    elif node is not None and not node.domain and node.op_type in _RULES and value is node.outputs[0]:
        if any(a.is_ref() for a in node.attributes.values()):
            return
        if node.op_type == "Shape":
            dims = knowledge.dims(node.inputs[0] if node.inputs else None)
            if dims is not None:  # a size without a name is 0 or more as well
                named = dim_elements([f"{value.name}.{axis}" if d is None else d for axis, d in enumerate(dims)])
                start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(dims))
                known.partial[value] = True, named[start:end]
            return
        for read in filter(None, node.inputs):
            _read_back(known, knowledge, read, asked)
        knowledge.type(value)
        partly = evaluate(known, node)
        if isinstance(partly, np.ndarray):
            known.constants[value] = partly
        elif partly is not None:
            known.partial[value] = partly


def dim_elements(dims: Sequence[int | str | None]) -> tuple[Element, ...]:
    """Return dims as polynomials, ``None`` for an unknown size."""
    return tuple(of_number(d) if isinstance(d, int) else of_name(d) if d else None for d in dims)


def _sound(items: Sequence[Element]) -> tuple[Element, ...]:
    return tuple(i if i is not None and i.sound else None for i in items)


def evaluate(known: Known, node: ir.Node) -> Elements | Array | None:
    """Return the first output of a node of shape arithmetic, as far as it is known; an array if fully known.

    ``None`` if no element is known, if there are more than 64, or if the operator is not shape arithmetic.
    """
    rule = _RULES.get(node.op_type)
    try:
        result = rule(known, node) if rule is not None else None
    except IndexError:  # the operator of an older opset, with attributes instead of inputs
        return None
    if result is None or isinstance(result, np.ndarray):
        return result
    vector, items = result[0], _sound(result[1])
    if len(items) > _LONGEST or all(i is None for i in items):
        return None
    numbers = [i.number for i in items if i is not None]
    if len(numbers) == len(items) and all(n is not None for n in numbers) and node.op_type != "Shape":
        proto = known.types.get(node.outputs[0])
        dtype = np.int32 if proto is not None and proto.tensor_type.elem_type == ir.DataType.INT32.value else np.int64
        if all(np.iinfo(dtype).min <= n <= np.iinfo(dtype).max for n in numbers if n is not None):
            return np.array(numbers if vector else numbers[0], dtype)
    return vector, items


def _shape(known: Known, node: ir.Node) -> Elements | None:
    dims = known.dims(node.inputs[0])
    if dims is None:
        return None
    start, end = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(dims))
    return True, dim_elements(dims)[start:end]


def _cast(known: Known, node: ir.Node) -> Elements | None:
    wide = cast_target(node) in (ir.DataType.INT64, ir.DataType.INT32)
    return elements(known, node.inputs[0]) if wide else None


def _gather(known: Known, node: ir.Node) -> Elements | None:
    data, index = elements(known, node.inputs[0]), known.constants.get(node.inputs[1])  # type: ignore[arg-type]
    if data is None or not data[0] or index is None or index.ndim > 1 or index.dtype.kind not in "iu":
        return None
    wanted = [int(i) for i in index.reshape(-1)]
    if any(not -len(data[1]) <= i < len(data[1]) for i in wanted):
        return None
    return index.ndim == 1, tuple(data[1][i] for i in wanted)


def _slice(known: Known, node: ir.Node) -> Elements | None:
    data = elements(known, node.inputs[0])
    bounds = [known.constants.get(v) for v in node.inputs[1:] if v is not None]
    if data is None or not data[0] or len(node.inputs) < 3 or any(b is None or b.size != 1 for b in bounds):
        return None
    numbers = [int(b.reshape(-1)[0]) for b in bounds if b is not None]
    step = numbers[3] if len(numbers) == 4 else 1
    if len(numbers) != len(node.inputs) - 1 or (len(numbers) > 2 and numbers[2] not in (0, -1)):
        return None
    try:
        return True, data[1][slice_of(numbers[0], numbers[1], step, len(data[1]))]
    except Uncertain:
        return None


def _concat(known: Known, node: ir.Node) -> Elements | None:
    parts = [elements(known, v) for v in node.inputs]
    if any(p is None or not p[0] for p in parts):
        # A part of which only the length is known still occupies its elements.
        sizes = [known.dims(v) for v in node.inputs]
        if any(d is None or len(d) != 1 or not isinstance(d[0], int) or d[0] > _LONGEST for d in sizes):
            return None
        parts = [p or (True, (None,) * int(d[0] or 0)) for p, d in zip(parts, sizes, strict=True) if d is not None]
    return True, tuple(item for p in parts if p is not None for item in p[1])


def _reshape(known: Known, node: ir.Node) -> Elements | None:
    data = elements(known, node.inputs[0])
    dims = known.dims(node.outputs[0])
    return (len(dims) == 1, data[1]) if data is not None and dims is not None and len(dims) <= 1 else None


def _pairs(known: Known, node: ir.Node) -> tuple[bool, list[tuple[Element, Element]]] | None:
    a, b = elements(known, node.inputs[0]), elements(known, node.inputs[1])
    if a is None or b is None or 0 in (len(a[1]), len(b[1])):
        return None
    size = max(len(a[1]), len(b[1]))
    if any(len(e[1]) not in (1, size) for e in (a, b)):
        return None
    a_items, b_items = (e[1] * size if len(e[1]) == 1 else e[1] for e in (a, b))
    return a[0] or b[0], list(zip(a_items, b_items, strict=True))


Rule = Callable[["Known", ir.Node], "Elements | Array | None"]


def _arithmetic(function: Callable[[Polynomial, Polynomial], Element]) -> Rule:
    def run(known: Known, node: ir.Node) -> Elements | None:
        pairs = _pairs(known, node)
        if pairs is None:
            return None
        return pairs[0], tuple(function(a, b) if a is not None and b is not None else None for a, b in pairs[1])

    return run


def _compare(truth: Callable[[int], bool]) -> Rule:
    """Return a rule that compares two vectors by the signs of a - b; its result is ``None`` unless all are known.

    ``truth`` returns the result of the comparison for a sign.
    """

    def run(known: Known, node: ir.Node) -> Array | None:
        vector, pairs = _pairs(known, node) or (False, [])
        signs = [_sign(a - b) if a is not None and b is not None else None for a, b in pairs]
        decided = [truth(sign) for sign in signs if sign is not None]
        if not pairs or len(decided) < len(pairs):
            return None
        return np.array(decided if vector else decided[0], np.bool_)

    return run


def _sign(difference: Polynomial) -> int | None:
    """Return 1 for a positive difference, -1 for a negative one, 0 for zero; ``None`` where it depends on sizes."""
    if difference.number is not None:
        return (difference.number > 0) - (difference.number < 0)
    if (difference.at_least or 0) > 0:
        return 1
    return -1 if ((of_number(0) - difference).at_least or 0) > 0 else None


def _by_sign(difference: Polynomial, positive: Polynomial, negative: Polynomial) -> Element:
    sign = _sign(difference)
    return None if sign is None else (positive if sign >= 0 else negative)


def _where(known: Known, node: ir.Node) -> Elements | None:
    condition = known.constants.get(node.inputs[0])  # type: ignore[arg-type]
    a, b = elements(known, node.inputs[1]), elements(known, node.inputs[2])
    if condition is None or a is None or b is None or condition.ndim > 1:
        return None
    size = max(condition.size, len(a[1]), len(b[1]))
    chosen = [bool(c) for c in condition.reshape(-1)]
    if any(n not in (1, size) for n in (len(chosen), len(a[1]), len(b[1]))):
        return None
    rows = (list(e) * size if len(e) == 1 else list(e) for e in (chosen, a[1], b[1]))
    return condition.ndim == 1 or a[0] or b[0], tuple(x if c else y for c, x, y in zip(*rows, strict=True))


def _product(known: Known, node: ir.Node) -> Elements | None:
    data = elements(known, node.inputs[0])
    if data is None or not data[0] or any(i is None for i in data[1]):
        return None
    dims = known.dims(node.outputs[0])
    if dims not in ((), (1,)):
        return None
    return len(dims) == 1, (_times(data[1]),)


def _times(items: Iterable[Element]) -> Polynomial:
    """Return the product of elements; unknown elements (``None``) are left out."""
    return reduce(mul, filter(None, items), of_number(1))


_RULES: dict[str, Rule] = {
    "Shape": _shape,
    "Identity": lambda known, node: elements(known, node.inputs[0]),
    "Cast": _cast,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Reshape": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Add": _arithmetic(add),
    "Sub": _arithmetic(sub),
    "Mul": _arithmetic(mul),
    "Div": _arithmetic(floor_divide),
    "Max": _arithmetic(lambda a, b: _by_sign(a - b, a, b)),
    "Min": _arithmetic(lambda a, b: _by_sign(a - b, b, a)),
    "Where": _where,
    "ReduceProd": _product,
    "Equal": _compare(lambda sign: sign == 0),
    "Greater": _compare(lambda sign: sign > 0),
    "Less": _compare(lambda sign: sign < 0),
    "GreaterOrEqual": _compare(lambda sign: sign >= 0),
    "LessOrEqual": _compare(lambda sign: sign <= 0),
}


def refined(known: Known, node: ir.Node) -> tuple[Element, ...] | None:
    """Return the dims of a node's first output, from the partly known values that it reads, such as a Reshape's shape.

    An unknown size is ``None``. The whole is ``None`` if the operator has no rule here, or the values are unknown.
    """
    rule = _DIMS.get(node.op_type)
    try:
        dims = rule(known, node) if rule is not None else None
    except IndexError:  # as in ``evaluate``
        return None
    return _sound(dims) if dims is not None else None


def _reshaped(known: Known, node: ir.Node) -> tuple[Element, ...] | None:
    target, dims = elements(known, node.inputs[1]), known.dims(node.inputs[0])
    if target is None or not target[0]:
        return None
    input_dims = dim_elements(dims) if dims is not None else None
    result: list[Element] = []
    inferred = None
    for axis, item in enumerate(target[1]):
        number = item.number if item is not None else None
        if number == -1:
            inferred = axis
            result.append(None)
        elif number == 0 and not node.attributes.get_int("allowzero", 0):
            result.append(input_dims[axis] if input_dims is not None and axis < len(input_dims) else None)
        elif item is not None and (item.at_least or 0) < 0:
            result.append(None)
        else:
            result.append(item)
    if inferred is not None and input_dims is not None:
        result[inferred] = _rest(input_dims, [r for i, r in enumerate(result) if i != inferred])
    return tuple(result)


def constant_target(known: Known, node: ir.Node) -> Array | None:
    """Return a constant that can replace the computed shape of a Reshape, for use without ``allowzero``.

    In it, 0 keeps the size of the input, and one -1 is inferred.

    Returns:
        the shape, or ``None`` if more than one size is neither a number nor kept, or if a 0 or -1 would be ambiguous.
        Also ``None`` for another operator.
    """
    if node.op_type != "Reshape" or len(node.inputs) < 2:
        return None
    literal = bool(node.attributes.get_int("allowzero", 0))
    target, dims = elements(known, node.inputs[1]), known.dims(node.inputs[0])
    if target is None or not target[0]:
        return None
    input_dims = dim_elements(dims) if dims is not None else ()
    numbers: list[int] = []
    for axis, item in enumerate(target[1]):
        number = item.number if item is not None else None
        is_kept = item is not None and axis < len(input_dims) and item == input_dims[axis]
        if literal and number == 0 and not is_kept:
            return None  # without allowzero, 0 is another size
        numbers.append(number if number is not None else 0 if is_kept else -1)
    # With a size of zero elsewhere, -1 would be ambiguous.
    others = [
        input_dims[axis] if n == 0 and axis < len(input_dims) else of_number(n)
        for axis, n in enumerate(numbers)
        if n != -1
    ]
    if numbers.count(-1) > 1 or (-1 in numbers and any(o is not None and o.number == 0 for o in others)):
        return None
    # With allowzero a size may be 0, as in an empty cache: a new -1 next to it has no value.
    own = any(item is not None and item.number == -1 for item in target[1])
    if literal and -1 in numbers and not own and any(o is None or not o.at_least for o in others):
        return None
    return np.array(numbers, np.int64)


def _rest(dims: Sequence[Element], others: Sequence[Element]) -> Element:
    """Return the size that -1 stands for: the number of all elements, divided by ``others``; ``None`` if unknown."""
    above, below = list(dims), []
    for item in others:  # dims that do not change may be unknown
        if item is not None and item in above:
            above.remove(item)
        else:
            below.append(item)
    if any(i is None for i in (*above, *below)):
        return None
    top, bottom = _times(above), _times(below)
    return top.divided(bottom) if top.sound and bottom.sound and bottom.terms else None


def _expanded(known: Known, node: ir.Node) -> tuple[Element, ...] | None:
    target, dims = elements(known, node.inputs[1]), known.dims(node.inputs[0])
    if target is None or not target[0] or dims is None:
        return None
    input_dims, target_dims = dim_elements(dims), target[1]
    rank = max(len(input_dims), len(target_dims))
    one = of_number(1)
    padded_dims: tuple[Element, ...] = (one,) * (rank - len(input_dims)) + input_dims
    padded_target: tuple[Element, ...] = (one,) * (rank - len(target_dims)) + target_dims
    return tuple(
        b if a == one else a if b in (one, a) else None for a, b in zip(padded_dims, padded_target, strict=True)
    )


def _filled(known: Known, node: ir.Node) -> tuple[Element, ...] | None:
    target = elements(known, node.inputs[0])
    return target[1] if target is not None and target[0] else None


def _ranged(known: Known, node: ir.Node) -> tuple[Element, ...] | None:
    if len(node.inputs) != 3:
        return None
    start, limit, step = (elements(known, v) for v in node.inputs)
    if start is None or limit is None or step is None or len(limit[1]) != 1:
        return None
    first, last = start[1][0], limit[1][0]
    if first is None or last is None or step[1] != (of_number(1),):
        return None
    length = last - first
    return (length,) if (length.at_least if length.at_least is not None else -1) >= 0 else None


def _joined(known: Known, node: ir.Node) -> tuple[Element, ...] | None:
    parts = [known.dims(v) for v in node.inputs]
    axis = node.attributes.get_int("axis", 0)
    first = parts[0] if parts else None
    if first is None or any(p is None or len(p) != len(first) for p in parts) or not -len(first) <= axis < len(first):
        return None
    sizes = [dim_elements(p)[axis % len(first)] for p in parts if p is not None]
    total = None if None in sizes else reduce(add, filter(None, sizes), of_number(0))
    return tuple(total if i == axis % len(first) else None for i in range(len(first)))


def _tiled(known: Known, node: ir.Node) -> tuple[Element, ...] | None:
    repeats, dims = elements(known, node.inputs[1]), known.dims(node.inputs[0])
    if repeats is None or dims is None or len(dims) != len(repeats[1]):
        return None
    return tuple(
        a * b if a is not None and b is not None else None for a, b in zip(dim_elements(dims), repeats[1], strict=True)
    )


def _sized(known: Known, node: ir.Node) -> tuple[Element, ...] | None:
    """Return the dims of the output of a Resize that reads ``sizes``; ``None`` if they are unknown."""
    if len(node.inputs) < 4 or "axes" in node.attributes or "keep_aspect_ratio_policy" in node.attributes:
        return None
    sizes = elements(known, node.inputs[3])
    return sizes[1] if sizes is not None and sizes[0] else None


_DIMS: dict[str, Callable[[Known, ir.Node], tuple[Element, ...] | None]] = {
    "Reshape": _reshaped,
    "Expand": _expanded,
    "ConstantOfShape": _filled,
    "Range": _ranged,
    "Concat": _joined,
    "Tile": _tiled,
    "Resize": _sized,
}
