"""SkipSimplifiedLayerNormalization: a sum, and the RMS normalization of it.

Measured (``tests/benchmarks/fused_kernels.py``): with a bias DirectML's kernel gives wrong numbers, and in FP16 the
squares of large values overflow in it, so it is written in FP32 and without a bias.
"""

from __future__ import annotations

import numpy as np

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.patterns import scalar
from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.passes.fusions.form import Form, Match, Operand, given, vector
from dmlprep.passes.fusions.reading import axes_of, made_by, reader, sides, source, spread_over

_EPSILON = 1e-12
"""The operator's default."""


def _match(last: NodeFacts) -> Match | str | None:
    found = _normalized(last.output())
    gamma: Operand | None = None
    if found is None:
        for normal, weight in sides(last):
            found = _normalized(last.inputs[normal]) if last.key == "Mul" else None
            if found is not None and _weighs(last.inputs[weight], found[0]):
                gamma = given(last, weight)
                break
        else:
            return None
    elif (behind := reader(last.output(), "Mul")) is not None and any(_weighs(v, found[0]) for v in behind.inputs):
        return None  # which is asked about next
    assert found is not None
    total, epsilon = found
    add = made_by(total, "Add")
    if add is None or add.graph != last.graph or len(add.inputs) != 2:
        return None  # RMS normalization of what is no sum
    if not total.static or 0 in total.sizes or len(total.sizes) not in (2, 3):
        return "its sizes are not known, or not of two or three dimensions"
    if total.type != "float":
        return f"its data are {total.type}: in FP16 DirectML's kernel overflows"
    if any(v is None or not v.static or v.sizes != total.sizes for v in add.inputs):
        return "one side of its sum is broadcast"
    return Match(
        at=add,
        gives=[(last, 0), (add, 3)],
        inputs=[given(add, 0), given(add, 1), vector(gamma, 1.0, total.sizes[-1], total, "gamma")],
        attributes={"epsilon": epsilon},
    )


def _weighs(value: Value | None, total: Value) -> bool:
    """Return whether a value is a constant of one number for each element of a row."""
    fits = value is not None and value.constant and total.static
    return fits and spread_over(value, len(total.sizes) - 1, total.sizes)


def _normalized(value: Value | None) -> tuple[Value, float] | None:
    """What is normalized by its root mean square over the last axis, and epsilon."""
    divided = made_by(value, "Div")
    if divided is not None:
        return _rooted(source(divided.input(0)), made_by(divided.input(1), "Sqrt"))
    product = made_by(value, "Mul")
    if product is None:
        return None
    for one, other in sides(product):
        inverse = made_by(product.inputs[other], "Reciprocal", "Div")
        if inverse is None or (inverse.key == "Div" and scalar(inverse.input(0)) != 1.0):
            continue
        rooted = _rooted(source(product.inputs[one]), made_by(inverse.inputs[-1], "Sqrt"))
        if rooted is not None:
            return rooted
    return None


def _rooted(data: Value | None, root: NodeFacts | None) -> tuple[Value, float] | None:
    moved = made_by(root.input(0), "Add") if root is not None else None
    if data is None or moved is None or data.rank is None:
        return None
    for one, other in sides(moved):
        mean, epsilon = made_by(moved.inputs[one], "ReduceMean"), scalar(moved.inputs[other])
        if mean is None or epsilon is None or not mean.attribute("keepdims", 1):
            continue
        axes = axes_of(mean)
        square = made_by(mean.input(0), "Mul", "Pow")
        if square is None or axes is None or [a % data.rank for a in axes] != [data.rank - 1]:
            continue
        first = source(square.input(0)) is data
        second = scalar(square.input(1)) == 2.0 if square.key == "Pow" else source(square.input(1)) is data
        if first and second:
            return data, epsilon
    return None


def _write_out(facts: NodeFacts, edit: Edit) -> str:
    node, old = edit.node, edit.node.outputs[0]
    kind, known = facts.inputs[0], [v is not None for v in node.inputs]
    if kind is None or kind.dtype is None or kind.rank is None or facts.opset < 1 or not all(known):
        return "the type of its input is not known"
    if any(v.name and (v.uses() or v.is_graph_output()) for v in node.outputs[1:3]):
        return "its statistics are read"
    dtype = kind.dtype.numpy()
    total = edit.before("Add", [node.inputs[0], node.inputs[1]], like=old, shape=kind.shape)
    if len(node.inputs) > 3:
        total = edit.before("Add", [total, node.inputs[3]], like=old, shape=kind.shape)
    square = edit.before("Mul", [total, total], like=old, shape=kind.shape)
    # By MatMul with 1 / size: axes are an attribute of ReduceMean below opset 18 and an input from there on.
    size = kind.shape[-1] if kind.shape else None
    if not isinstance(size, int):
        return "the shape of its input is not known"
    mean = edit.before("MatMul", [square, edit.constant(np.full((size, 1), 1 / size, dtype), "mean")], like=old)
    mean.shape = None
    epsilon = edit.constant(np.array(facts.attribute("epsilon", _EPSILON), dtype), "epsilon")
    root = edit.before("Sqrt", [edit.before("Add", [mean, epsilon], dtype=kind.dtype)], dtype=kind.dtype)
    normal = edit.before("Div", [total, root], like=old, shape=kind.shape)
    if len(node.outputs) > 3 and node.outputs[3].name:
        edit.replace_output(total, 3)
    return edit.become(edit.before("Mul", [normal, node.inputs[2]], like=old, shape=kind.shape))


SKIP_NORM = Form(
    "skip_norm", "SkipSimplifiedLayerNormalization", frozenset({"Mul", "Div"}), _match, _write_out, on_cpu=True
)
