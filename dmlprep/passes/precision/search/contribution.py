"""Where FP16 error comes from: the FP32 model and its FP16 emulation side by side in one graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import graphs, label
from dmlprep.graph.rewriting.names import Names
from dmlprep.metrics import data_dependent
from dmlprep.passes.precision.emulation.emulate import Rounding, emulate, forget_symbolic_shapes
from dmlprep.passes.precision.emulation.rounding import Builder, Constants
from dmlprep.passes.precision.types import is_wide, solve_types
from dmlprep.portable.arrays import Array
from dmlprep.record.aliases import Progress

if TYPE_CHECKING:
    from dmlprep.graph.model.runner import Runner

CHUNK = 250
"""Values compared in one run."""

Feeds = Mapping[str, Array]


class Growth(NamedTuple):
    """Of one node: the relative error of its result, and that error less the largest among its operands."""

    result: float
    grown: float


def error_growth(
    original: Model,
    converted: Model,
    runner: Runner,
    feeds: Iterable[Feeds],
    *,
    rounding: Rounding = "nearest",
    progress: Progress = lambda share, text: None,
) -> dict[str, Growth]:
    """How far each node's result has drifted in the FP16 emulation, and how much of that is the node's own doing.

    Args:
        original: the FP32 model.
        converted: the same model in FP16; its values keep their names.

    Returns:
        node label -> its growth. A relative error is the norm of the difference over the norm of the FP32 value;
        1e30 where the reference is not finite.

    Raises:
        ModelRefused: a model does not run.
    """
    both, pairs = _side_by_side(original, emulate(converted, "storage", rounding))
    errors: dict[str, float] = {}
    every = list(feeds)
    names = list(pairs)
    pieces = [names[i : i + CHUNK] for i in range(0, len(names), CHUNK)]
    done, total = 0, max(1, len(pieces) * len(every))
    for piece in pieces:
        probe, output = _probe(both, [(name, pairs[name]) for name in piece])
        for one in every:
            progress(done / total, f"error of {len(piece)} values")
            found = runner.run(probe, one, [output])[output].reshape(-1)
            done += 1
            for name, error in zip(piece, found, strict=True):
                number = float(error) if np.isfinite(error) else 1e30
                errors[name] = max(errors.get(name, 0.0), number)
    growth: dict[str, Growth] = {}
    for node in original.ir.graph:
        mine = max((errors.get(v.name or "", 0.0) for v in node.outputs), default=0.0)
        before = max((errors.get(v.name or "", 0.0) for v in node.inputs if v is not None), default=0.0)
        if any(v.name in errors for v in node.outputs):
            growth[label(node)] = Growth(mine, mine - before)
    return growth


def _side_by_side(original: Model, shadow: Model) -> tuple[Model, dict[str, str]]:
    """Both models in one: the FP32 model's values get a prefix, inputs are shared."""
    plain = original.copy()
    types = solve_types(plain.ir)
    wide = {v.name or "" for node in plain.ir.graph for v in node.outputs if is_wide(types.get(v))}
    wide -= data_dependent(plain)
    inputs = {v.name for v in plain.ir.graph.inputs}
    for _, graph in graphs(plain.ir):
        values = [v for node in graph for v in node.outputs]
        if isinstance(graph, ir.Graph):
            values += [v for v in graph.initializers.values() if v.name not in inputs]
            values += [v for v in graph.inputs if v.name not in inputs]
        for value in values:
            if value.name:
                value.name = f"fp32/{value.name}"
        for node in graph:
            if node.name:
                node.name = f"fp32/{node.name}"
    target = shadow.ir.graph
    by_name = {v.name: v for v in target.inputs}
    for value in plain.ir.graph.inputs:
        twin = by_name.get(value.name)
        if twin is not None:
            value.replace_all_uses_with(twin, replace_graph_outputs=True)
    for value in list(plain.ir.graph.initializers.values()):
        if value.name in by_name:
            continue
        plain.ir.graph.initializers.pop(value.name or "")
        target.register_initializer(value)
    moved = list(plain.ir.graph)
    plain.ir.graph.outputs.clear()
    for node in moved:
        plain.ir.graph.remove(node)
    target.extend(moved)
    ours = {v.name for node in target for v in node.outputs}
    pairs = {}
    for name in wide:
        # a value that became a graph output of another type carries a suffix where it was FP16
        for candidate in (f"{name}_fp16", name):
            if candidate in ours and f"fp32/{name}" in ours:
                pairs[name] = candidate
                break
    return shadow, pairs


def _probe(both: Model, pairs: list[tuple[str, str]]) -> tuple[Model, str]:
    probe = both.copy()
    graph = probe.ir.graph
    names = Names(probe.ir)
    builder = Builder(graph, names, probe.opset, "nearest", Constants(probe.ir, names))
    values = {v.name: v for node in graph for v in node.outputs}
    column = []
    for name, twin in pairs:
        exact, half = values[f"fp32/{name}"], values[twin]
        # masks are so large that their rounding would hide everything else
        limit = builder.number(1e4)
        low = builder.number(-1e4)
        flat = [builder.op("Reshape", [_single(builder, v), builder.ints([-1])]) for v in (exact, half)]
        exact, half = (builder.op("Min", [builder.op("Max", [v, low]), limit]) for v in flat)
        difference = builder.op("Sub", [half, exact])
        norms = [builder.op("ReduceL2", [v], keepdims=1) for v in (difference, exact)]
        column.append(builder.op("Div", [norms[0], builder.op("Add", [norms[1], builder.number(1e-20)])]))
    joined = builder.op("Concat", column, axis=0)
    joined.shape = ir.Shape([len(column)])
    builder.place_last()
    graph.outputs.clear()
    graph.outputs.append(joined)
    forget_symbolic_shapes(probe)
    return probe, joined.name or ""


def _single(builder: Builder, value: ir.Value) -> ir.Value:
    return value if value.dtype == ir.DataType.FLOAT else builder.op("Cast", [value], to=ir.DataType.FLOAT.value)
