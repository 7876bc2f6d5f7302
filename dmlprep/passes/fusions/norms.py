"""Fuse normalizations into GroupNorm or SkipSimplifiedLayerNormalization of com.microsoft, and expand these again.

GroupNorm, with or without Swish, is Reshape, InstanceNormalization, Reshape, Mul, Add, and x * sigmoid(x).
SkipSimplifiedLayerNormalization is a sum, and the RMS normalization of it.

PyTorch exports GroupNorm this way below opset 18. Measured (``tests/benchmarks/fused_kernels.py``): DirectML's kernel
of GroupNorm accepts four dimensions, and gamma and beta in FP32 or in the type of the data. Its kernel of
SkipSimplifiedLayerNormalization computes wrong numbers with a bias. In FP16 the squares of large values overflow in it.
So that operator is written in FP32 and without a bias.
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.quirks.patterns import scalar
from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.passes.fusions.form import Form, Match, Operand, input_operand, vector, view
from dmlprep.passes.fusions.reading import all_are, axes_of, made_by, reader, sides, source, spread_over, swish_behind

_RANK = 4
"""Number of dimensions that the kernel of GroupNorm accepts; data of another rank is reshaped."""

_TYPES = ("float", "float16")

_GROUP_EPSILON = 1e-5
"""Default epsilon of InstanceNormalization and of GroupNorm."""

_SKIP_EPSILON = 1e-12
"""Default epsilon of SkipSimplifiedLayerNormalization."""


def _match_norm(norm: NodeFacts) -> Match | str | None:
    before = made_by(norm.input(0), "Reshape")
    after = reader(norm.output(), "Reshape")
    data, whole = (before.input(0), after.output()) if before and after else (None, None)
    if before is None or after is None or data is None or whole is None:
        return None
    if not data.static:
        return "the sizes of its data are unknown"
    sizes = data.sizes
    result = whole
    weights: dict[str, Operand | None] = {}
    for op in ("Mul", "Add"):  # either may be missing: simplify removes a Mul by 1 and an Add of 0
        node = reader(result, op)
        weights[op] = _weight(node, result, sizes) if node is not None else None
        output = node.output() if node is not None and weights[op] is not None else None
        if output is not None:
            result = output
    grouped = before.output()
    if grouped is None or not (grouped.static and whole.static and result.static):
        return "the sizes of its data are unknown"
    if whole.sizes != sizes or result.sizes != sizes or len(sizes) < 3 or len(grouped.sizes) < 3:
        return None
    batch, channels = sizes[:2]
    groups = grouped.sizes[1]
    if grouped.sizes[0] != batch or not groups or channels % groups or groups == channels == 1:
        return None
    if 0 in sizes:
        return "its data are empty"
    if data.type not in _TYPES:
        return f"its data are {data.type}"
    if not all_are(norm.input(1), 1.0, groups) or not all_are(norm.input(2), 0.0, groups):
        return "its InstanceNormalization has a scale other than 1 or a bias other than 0"
    last = swish_behind(result)
    final = last or result.producer
    assert final is not None  # the Reshape, the Mul or the Add
    flat = [] if len(sizes) == _RANK else [batch, channels, prod(sizes[2:]), 1]
    data_operand = input_operand(before, 0)
    return Match(
        at=final,
        gives=[(final, 0)],
        inputs=[
            view(data_operand, flat, "data") if flat else data_operand,
            vector(weights["Mul"], 1.0, channels, data, "gamma"),
            vector(weights["Add"], 0.0, channels, data, "beta"),
        ],
        attributes={
            "groups": groups,
            "epsilon": float(norm.attribute("epsilon", _GROUP_EPSILON)),
            "activation": int(last is not None),
            "channels_last": 0,
        },
        reshaped=flat,
    )


def _weight(node: NodeFacts, data: Value | None, sizes: list[int]) -> Operand | None:
    """The constant operand of a Mul or Add of ``data``, if it has one number for each channel; otherwise ``None``.

    ``sizes``: the shape of the data.
    """
    for one, other in sides(node):
        weight = node.inputs[other]
        if node.inputs[one] is data and weight is not None and weight.constant and spread_over(weight, 1, sizes):
            return input_operand(node, other)
    return None


def _write_norm(facts: NodeFacts, edit: Edit) -> str:
    node, old = edit.node, edit.node.outputs[0]
    data, gamma, beta = (node.inputs[index] for index in range(3))
    shape = facts.inputs[0].shape if facts.inputs[0] is not None else None
    kind = facts.inputs[0].dtype if facts.inputs[0] is not None else None
    if data is None or gamma is None or beta is None or shape is None or kind is None or len(shape) < 2:
        return "the shape of its input is unknown"
    rank, last = len(shape), facts.attribute("channels_last", 1)
    # move the channels behind the batch, and back
    there, back = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    if last:
        data = edit.before("Transpose", [data], {"perm": there}, like=old, shape=[shape[i] for i in there])
    laid = [shape[i] for i in there] if last else list(shape)
    groups = int(facts.attribute("groups", 1))
    one, zero = (edit.constant(np.full(groups, number, kind.numpy()), "group") for number in (1.0, 0.0))
    apart = edit.before("Reshape", [data, edit.integers([0, groups, -1], "shape")], like=old, shape=None)
    epsilon = {"epsilon": float(facts.attribute("epsilon", _GROUP_EPSILON))}
    normal = edit.before("InstanceNormalization", [apart, one, zero], epsilon, like=old)
    if all(isinstance(size, int) for size in laid):
        to = edit.integers([size for size in laid if isinstance(size, int)], "shape")
    else:
        to = edit.before("Shape", [data], dtype=ir.DataType.INT64, shape=[rank])
    value = edit.before("Reshape", [normal, to], like=old, shape=laid)
    for op, weight, place in (("Mul", gamma, 1), ("Add", beta, 2)):
        held = facts.inputs[place]
        if held is None or held.dtype != kind:
            weight = edit.before("Cast", [weight], {"to": int(kind)}, dtype=kind)
        spread = edit.before("Reshape", [weight, edit.integers([-1, *[1] * (rank - 2)], "shape")], dtype=kind)
        value = edit.before(op, [value, spread], like=old, shape=laid)
    if facts.attribute("activation", 0):
        value = edit.before("Mul", [value, edit.before("Sigmoid", [value], like=old, shape=laid)], like=old, shape=laid)
    if last:
        value = edit.before("Transpose", [value], {"perm": back}, like=old, shape=shape)
    return edit.become(value)


GROUP_NORM = Form(
    "group_norm", "GroupNorm", frozenset({"InstanceNormalization"}), _match_norm, _write_norm, on_cpu=False
)


def _match_skip(last: NodeFacts) -> Match | str | None:
    normalized = _normalized(last.output())
    gamma: Operand | None = None
    if normalized is None:
        for normal, weight in sides(last):
            normalized = _normalized(last.inputs[normal]) if last.key == "Mul" else None
            if normalized is not None and _weighs(last.inputs[weight], normalized[0]):
                gamma = input_operand(last, weight)
                break
        else:
            return None
    elif (behind := reader(last.output(), "Mul")) is not None and any(_weighs(v, normalized[0]) for v in behind.inputs):
        return None  # the match at that Mul handles it
    assert normalized is not None
    total, epsilon = normalized
    add = made_by(total, "Add")
    if add is None or add.graph != last.graph or len(add.inputs) != 2:
        return None  # RMS normalization, but not of a sum
    if not total.static or 0 in total.sizes or len(total.sizes) not in (2, 3):
        return "the sizes of its sum are unknown, or it does not have two or three dimensions"
    if total.type != "float":
        return f"its data are {total.type}: in FP16 DirectML's kernel overflows"
    if any(v is None or not v.static or v.sizes != total.sizes for v in add.inputs):
        return "one side of its sum is broadcast"
    return Match(
        at=add,
        gives=[(last, 0), (add, 3)],
        inputs=[input_operand(add, 0), input_operand(add, 1), vector(gamma, 1.0, total.sizes[-1], total, "gamma")],
        attributes={"epsilon": epsilon},
    )


def _weighs(value: Value | None, total: Value) -> bool:
    """Return whether a value is constant, with one number for each index of the last axis of ``total``."""
    fits = value is not None and value.constant and total.static
    return fits and spread_over(value, len(total.sizes) - 1, total.sizes)


def _normalized(value: Value | None) -> tuple[Value, float] | None:
    """Match x / sqrt(mean(x * x) + epsilon) over the last axis, and return x and epsilon; ``None`` for other values."""
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


def _write_skip(facts: NodeFacts, edit: Edit) -> str:
    node, old = edit.node, edit.node.outputs[0]
    kind, known = facts.inputs[0], [v is not None for v in node.inputs]
    if kind is None or kind.dtype is None or kind.rank is None or facts.opset < 1 or not all(known):
        return "the type of its input is unknown"
    if any(v.name and (v.uses() or v.is_graph_output()) for v in node.outputs[1:3]):
        return "other nodes read its statistics"
    dtype = kind.dtype.numpy()
    total = edit.before("Add", [node.inputs[0], node.inputs[1]], like=old, shape=kind.shape)
    if len(node.inputs) > 3:
        total = edit.before("Add", [total, node.inputs[3]], like=old, shape=kind.shape)
    square = edit.before("Mul", [total, total], like=old, shape=kind.shape)
    # Use MatMul with 1 / size: the axes of ReduceMean are an attribute below opset 18, and an input from 18 on.
    size = kind.shape[-1] if kind.shape else None
    if not isinstance(size, int):
        return "the shape of its input is unknown"
    mean = edit.before("MatMul", [square, edit.constant(np.full((size, 1), 1 / size, dtype), "mean")], like=old)
    mean.shape = None
    epsilon = edit.constant(np.array(facts.attribute("epsilon", _SKIP_EPSILON), dtype), "epsilon")
    root = edit.before("Sqrt", [edit.before("Add", [mean, epsilon], dtype=kind.dtype)], dtype=kind.dtype)
    normal = edit.before("Div", [total, root], like=old, shape=kind.shape)
    if len(node.outputs) > 3 and node.outputs[3].name:
        edit.replace_output(total, 3)
    return edit.become(edit.before("Mul", [normal, node.inputs[2]], like=old, shape=kind.shape))


SKIP_NORM = Form(
    "skip_norm", "SkipSimplifiedLayerNormalization", frozenset({"Mul", "Div"}), _match_skip, _write_skip, on_cpu=True
)
