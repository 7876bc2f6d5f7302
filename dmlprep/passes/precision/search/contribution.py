"""Measure where FP16 error comes from, with the FP32 model and its FP16 emulation side by side in one graph."""

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
from dmlprep.passes.precision.lift import lift
from dmlprep.passes.precision.search.measuring import flat_single, in_pieces
from dmlprep.passes.precision.types import is_wide, solve_types
from dmlprep.portable.arrays import Array
from dmlprep.record.aliases import Progress

if TYPE_CHECKING:
    from dmlprep.graph.model.runner import Runner

CHUNK = 250
"""Number of values that are compared in one run."""

Feeds = Mapping[str, Array]


class Growth(NamedTuple):
    """The relative error of a node's result in FP16.

    ``grown``: that error minus the largest error among the node's operands.
    """

    result: float
    grown: float


def error_growth(
    original: Model,
    converted: Model,
    runner: Runner,
    feeds: Iterable[Feeds],
    rounding: Rounding = "nearest",
    progress: Progress = lambda share, text: None,
) -> dict[str, Growth]:
    """Measure the error of each node's result in the FP16 emulation, and the part that the node itself adds.

    Args:
        converted: ``original`` in FP16; its values must have their original names.

    Returns:
        label of a node of the main graph -> its largest errors over all feeds. Nodes without a measured value, for
            example whose number of rows depends on data, are missing. A relative error is the norm of the
            difference over the norm of the FP32 value, with both clamped to 1e4 in magnitude; 1e30 if it is not finite.
    """
    both, pairs = _side_by_side(original, emulate(converted, "storage", rounding))
    errors: dict[str, float] = {}

    def probe(piece: list[str]) -> tuple[Model, str, list[str]]:
        return _probe(both, {name: pairs[name] for name in piece})

    def tell(share: float, count: int) -> None:
        progress(share, f"error of {count} values")

    for names, numbers in in_pieces(runner, feeds, list(pairs), CHUNK, probe, tell):
        for name, error in zip(names, numbers.reshape(-1), strict=True):
            errors[name] = max(errors.get(name, 0.0), float(error) if np.isfinite(error) else 1e30)

    def worst(values: Iterable[ir.Value | None]) -> float:
        return max((errors.get(v.name or "", 0.0) for v in values if v is not None), default=0.0)

    measured = [n for n in original.ir.graph if any(v.name in errors for v in n.outputs)]
    return {label(n): Growth(worst(n.outputs), worst(n.outputs) - worst(n.inputs)) for n in measured}


def _side_by_side(original: Model, shadow: Model) -> tuple[Model, dict[str, str]]:
    """Move a copy of the FP32 model into ``shadow``, the emulation, in place; both then share the graph inputs.

    Returns ``shadow``, and a map from the original name of each value to compare to its name in the emulation. The FP32
    value is called ``fp32/NAME``.
    """
    plain = original.copy()
    types = solve_types(plain.ir)
    wide = {v.name or "" for node in plain.ir.graph for v in node.outputs if is_wide(types.get(v))}
    wide -= data_dependent(plain)
    lift(plain)
    inputs = {v.name for v in plain.ir.graph.inputs}
    for _, graph in graphs(plain.ir):
        values = [v for node in graph for v in node.outputs]
        if isinstance(graph, ir.Graph):
            values += [v for v in graph.initializers.values() if v.name not in inputs]
            values += [v for v in graph.inputs if v.name not in inputs]
        for one in (*values, *graph):
            if one.name:
                one.name = f"fp32/{one.name}"
    target = shadow.ir.graph
    by_name = {v.name: v for v in target.inputs}
    for value in plain.ir.graph.inputs:
        if value.name in by_name:
            value.replace_all_uses_with(by_name[value.name], replace_graph_outputs=True)
    for name, value in list(plain.ir.graph.initializers.items()):
        if name not in by_name:
            del plain.ir.graph.initializers[name]
            target.register_initializer(value)
    moved = list(plain.ir.graph)
    plain.ir.graph.outputs.clear()
    plain.ir.graph.remove(moved)
    target.extend(moved)
    ours = {v.name for node in target for v in node.outputs}
    # an FP16 value that became a graph output of another type has a suffix
    twins = {name: f"{name}_fp16" if f"{name}_fp16" in ours else name for name in wide if f"fp32/{name}" in ours}
    return shadow, {name: twin for name, twin in twins.items() if twin in ours}


def _probe(both: Model, pairs: Mapping[str, str]) -> tuple[Model, str, list[str]]:
    probe = both.copy()
    graph, names = probe.ir.graph, Names(probe.ir)
    builder = Builder(graph, names, probe.opset, "nearest", Constants(probe.ir, names))
    values = {v.name: v for node in graph for v in node.outputs}
    column = []
    for name, twin in pairs.items():
        exact, half = values[f"fp32/{name}"], values[twin]
        # masks are so large that their rounding would hide all other errors
        limit, low = builder.number(1e4), builder.number(-1e4)
        flat = [flat_single(builder, v) for v in (exact, half)]
        exact, half = (builder.op("Min", [builder.op("Max", [v, low]), limit]) for v in flat)
        norms = [builder.op("ReduceL2", [v], keepdims=1) for v in (builder.op("Sub", [half, exact]), exact)]
        column.append(builder.op("Div", [norms[0], builder.op("Add", [norms[1], builder.number(1e-20)])]))
    joined = builder.op("Concat", column, axis=0)
    joined.shape = ir.Shape([len(column)])
    builder.place_last()
    graph.outputs.clear()
    graph.outputs.append(joined)
    forget_symbolic_shapes(probe)
    return probe, joined.name or "", list(pairs)
