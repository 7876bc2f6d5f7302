"""Rewrite the root of a mean of squares that stays in FP32 with ReduceSumSquare, which needs no tensor of squares.

``Sqrt(ReduceMean(x ** 2) + e)`` is ``Sqrt(ReduceSumSquare(x * c) + e * f) / sqrt(f)`` with ``f = n * c * c``. Here n is
the number of elements of a mean, and c a power of two such that f is at least 1 and below 4. Then ``x * c`` loses no
digits in FP16, and only the sum of squares needs FP32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from dmlprep.directml.targets import Target
from dmlprep.graph.analysis.knowledge import is_static
from dmlprep.graph.analysis.shapes import Inference
from dmlprep.graph.model import Model
from dmlprep.graph.rewriting.builder import GraphBuilder, replace_value
from dmlprep.graph.rewriting.names import Names
from dmlprep.passes.precision.convert.plan import make_plan
from dmlprep.passes.precision.policy.rules import Level
from dmlprep.passes.precision.view import View, scalar


@dataclass(frozen=True)
class _Root:
    square: ir.Node
    mean: ir.Node
    add: ir.Node
    root: ir.Node
    epsilon: int


def sum_squares(model: Model, keep: Mapping[int, str], target: Target | None, level: Level) -> bool:
    """Rewrite, in place, each root of a mean of squares in the main graph; return whether the model changed.

    Only roots whose square, mean and Add (of epsilon) are all in ``keep``, by ``id``, are rewritten. The number of
    elements of a mean must be known, and the node before the square must be in FP16. A model with functions is
    unchanged. The mean's node stays the same object, and becomes the ReduceSumSquare.
    """
    if not any(n.op_type == "ReduceMean" and id(n) in keep for n in model.ir.graph) or model.ir.functions:
        return False
    view = View.of(model.ir, target)
    matched = [r for n in model.ir.graph if n.op_type == "ReduceMean" and (r := _match(view, n)) is not None]
    roots = [r for r in matched if all(id(n) in keep for n in (r.square, r.mean, r.add))]
    if not roots:
        return False
    shapes = Inference.of(model.ir)
    full = make_plan(view, level=level, keep=keep).full
    builder = GraphBuilder(model.ir.graph, Names(model.ir))
    changed = False
    for one in roots:
        producer = one.square.inputs[0].producer() if one.square.inputs[0] is not None else None
        # the value before the square may itself be out of range
        size = _size(shapes, one.mean) if producer not in full else None
        if size:
            _rewrite(builder, view, one, size)
            changed = True
    return changed


def lone_roots(model: Model) -> list[tuple[ir.Node, ir.Node, ir.Node]]:
    """The nodes (square, mean, Add of epsilon) of each root that ``sum_squares`` can rewrite if they stay in FP32.

    Nodes of a LayerNormalization or an RMSNormalization are not included: ONNX Runtime fuses them unchanged. There the
    square is of a difference, or the quotient is multiplied by a weight.
    """
    means = [n for n in model.ir.graph if n.op_type == "ReduceMean"]
    if not means:
        return []
    view = View.of(model.ir, None)
    matched = [r for n in means if (r := _match(view, n)) is not None]
    return [(r.square, r.mean, r.add) for r in matched if not _fusable(view, r)]


def _fusable(view: View, one: _Root) -> bool:
    value = one.square.inputs[0]
    producer = value.producer() if value is not None else None
    if producer is not None and producer.op_type == "Sub":
        return True
    divided = {r for n in one.root.outputs[0].consumers() for v in n.outputs for r in v.consumers()}
    divided |= {r for n in divided if n.op_type == "Cast" for v in n.outputs for r in v.consumers()}
    return any(n.op_type == "Mul" and any(view.constant(v) is not None for v in n.inputs) for n in divided)


def _only_reader(value: ir.Value) -> ir.Node | None:
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def _match(view: View, mean: ir.Node) -> _Root | None:
    value = mean.inputs[0]
    square = value.producer() if value is not None else None
    if square is None or value is None or _only_reader(value) is not mean:
        return None
    power = square.op_type == "Pow" and scalar(view.constant(square.inputs[1])) == 2.0
    if not power and not (square.op_type == "Mul" and square.inputs[0] is square.inputs[1]):
        return None
    kind = view.types.get(square.inputs[0]) if square.inputs[0] is not None else None
    if not isinstance(kind, ir.TensorType) or kind.dtype != ir.DataType.FLOAT:
        return None
    add = _only_reader(mean.outputs[0])
    if add is None or add.op_type != "Add":
        return None
    epsilon = 1 if add.inputs[0] is mean.outputs[0] else 0
    root = _only_reader(add.outputs[0])
    if root is None or root.op_type != "Sqrt" or scalar(view.constant(add.inputs[epsilon])) is None:
        return None
    return _Root(square, mean, add, root, epsilon)


def _size(shapes: Inference, mean: ir.Node) -> int | None:
    """The number of elements that a ReduceMean averages; ``None`` if it is unknown."""
    source = shapes.dims(mean.inputs[0])
    chosen: Sequence[int] | None = mean.attributes.get_ints("axes")
    if len(mean.inputs) > 1 and mean.inputs[1] is not None:
        known = shapes.constant(mean.inputs[1])
        chosen = [int(a) for a in known.reshape(-1)] if known is not None else None
    if source is None or not chosen:
        return None
    sizes = [source[a] for a in chosen]
    return math.prod(d for d in sizes if isinstance(d, int)) if is_static(sizes) else None


def _rewrite(builder: GraphBuilder, view: View, one: _Root, size: int) -> None:
    factor = 2.0 ** -(int(math.log2(size)) // 2)
    share = size * factor * factor
    value = one.square.inputs[0]
    assert value is not None
    if factor != 1.0:
        wish = f"{one.square.name or 'square'}_scaled"
        less = builder.new_value(wish, ir.TensorType(ir.DataType.FLOAT), value.shape)
        builder.graph.insert_before(one.square, _times(builder, value, factor, less, wish))
        value = less
    one.mean.replace_input_with(0, value)
    one.mean.op_type = "ReduceSumSquare"
    builder.graph.remove(one.square, safe=True)
    if share != 1.0:
        epsilon = scalar(view.constant(one.add.inputs[one.epsilon]))
        assert epsilon is not None
        number = builder.constant(np.asarray(epsilon * share, np.float32), f"{one.add.name or 'add'}_epsilon")
        one.add.replace_input_with(one.epsilon, number)
        result, scaled = one.root.outputs[0], ir.Value()
        back = _times(builder, result, share**-0.5, scaled, f"{one.root.name or 'root'}_of_mean")
        replace_value(result, scaled, builder.value_name(f"{result.name or 'root'}_of_sum"), [back])


def _times(builder: GraphBuilder, value: ir.Value, number: float, out: ir.Value, wish: str) -> ir.Node:
    """Return a new Mul node that computes ``out`` = ``value`` * ``number``; the caller inserts it.

    ``wish``: the name of the node, changed if it is taken.
    """
    factor = builder.constant(np.asarray(number, np.float32), f"{wish}_factor")
    return builder.new_node("Mul", [value, factor], [out], wish)
