"""GroupNorm, with or without Swish: Reshape, InstanceNormalization, Reshape, Mul, Add, and x * sigmoid(x).

PyTorch writes it so below opset 18. Measured (``tests/benchmarks/fused_kernels.py``): DirectML's kernel takes
four dimensions; gamma and beta in FP32 or in the type of the data.
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from dmlprep.directml.quirks.editing import Edit
from dmlprep.directml.targets.facts import NodeFacts, Value
from dmlprep.passes.fusions.form import Form, Match, Operand, given, vector, view
from dmlprep.passes.fusions.reading import all_are, made_by, reader, sides, spread_over, swish_behind

_RANK = 4
"""Dimensions that the kernel takes; what has more or fewer is reshaped."""

_TYPES = ("float", "float16")

_EPSILON = 1e-5
"""The default of InstanceNormalization and of GroupNorm."""


def _match(norm: NodeFacts) -> Match | str | None:
    before = made_by(norm.input(0), "Reshape")
    after = reader(norm.output(), "Reshape")
    data, whole = (before.input(0), after.output()) if before and after else (None, None)
    if before is None or after is None or data is None or whole is None:
        return None
    if not data.static:
        return "its sizes are not known"
    sizes = data.sizes
    result = whole
    weights: dict[str, Operand | None] = {}
    for op in ("Mul", "Add"):  # either may be missing: simplify takes out what multiplies by 1 or adds 0
        node = reader(result, op)
        weights[op] = _weight(node, result, sizes) if node is not None else None
        made = node.output() if node is not None and weights[op] is not None else None
        if made is not None:
            result = made
    grouped = before.output()
    if grouped is None or not (grouped.static and whole.static and result.static):
        return "its sizes are not known"
    if whole.sizes != sizes or result.sizes != sizes or len(sizes) < 3 or len(grouped.sizes) < 3:
        return None
    batch, channels = sizes[:2]
    groups = grouped.sizes[1]
    if grouped.sizes[0] != batch or not groups or channels % groups or groups == channels == 1:
        return None
    if 0 in sizes:
        return "it is empty"
    if data.type not in _TYPES:
        return f"its data are {data.type}"
    if not all_are(norm.input(1), 1.0, groups) or not all_are(norm.input(2), 0.0, groups):
        return "its InstanceNormalization scales or shifts"
    last = swish_behind(result)
    final = last or result.producer
    assert final is not None  # the Reshape, the Mul or the Add
    flat = [] if len(sizes) == _RANK else [batch, channels, prod(sizes[2:]), 1]
    data_operand = given(before, 0)
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
            "epsilon": float(norm.attribute("epsilon", _EPSILON)),
            "activation": int(last is not None),
            "channels_last": 0,
        },
        reshaped=flat,
    )


def _weight(node: NodeFacts, data: Value | None, sizes: list[int]) -> Operand | None:
    """The constant operand of a Mul or an Add, where it has one number for each channel."""
    for one, other in sides(node):
        weight = node.inputs[other]
        if node.inputs[one] is data and weight is not None and weight.constant and spread_over(weight, 1, sizes):
            return given(node, other)
    return None


def _write_out(facts: NodeFacts, edit: Edit) -> str:
    node, old = edit.node, edit.node.outputs[0]
    data, gamma, beta = (node.inputs[index] for index in range(3))
    shape = facts.inputs[0].shape if facts.inputs[0] is not None else None
    kind = facts.inputs[0].dtype if facts.inputs[0] is not None else None
    if data is None or gamma is None or beta is None or shape is None or kind is None or len(shape) < 2:
        return "the shape of its input is not known"
    rank, last = len(shape), facts.attribute("channels_last", 1)
    # channels behind the batch, and back
    there, back = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    if last:
        data = edit.before("Transpose", [data], {"perm": there}, like=old, shape=[shape[i] for i in there])
    laid = [shape[i] for i in there] if last else list(shape)
    groups = int(facts.attribute("groups", 1))
    one, zero = (edit.constant(np.full(groups, number, kind.numpy()), "group") for number in (1.0, 0.0))
    apart = edit.before("Reshape", [data, edit.integers([0, groups, -1], "shape")], like=old, shape=None)
    epsilon = {"epsilon": float(facts.attribute("epsilon", _EPSILON))}
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


GROUP_NORM = Form("group_norm", "GroupNorm", frozenset({"InstanceNormalization"}), _match, _write_out, on_cpu=False)
