"""The range profile: how large and how small every floating value of a model gets, from one FP32 run over the feeds.

The numbers are reduced inside the graph, so that a run brings back four numbers a value, whatever its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from dmlprep.model import Model
from dmlprep.model.walk import label
from dmlprep.precision.half import FP16_MAX, FP16_NORMAL
from dmlprep.precision.names import Names
from dmlprep.precision.probing import forget_symbolic_shapes
from dmlprep.precision.rounding import Builder, Constants
from dmlprep.precision.types import Types, is_wide, solve_types

if TYPE_CHECKING:
    from dmlprep.passes.base import Runner

__all__ = ["CHUNK", "Range", "profile"]

CHUNK = 250
"""Values measured in one run: each takes 13 more nodes, and ONNX Runtime's loading time grows with their square."""

Feeds = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Range:
    """What one value was over all feeds.

    Attributes:
        value: its name.
        node: label of the node that makes it.
        minimum: its smallest element, or 0 where that is larger.
        maximum: its largest element, or 0 where that is smaller.
        small: share of its elements that are not zero, yet below the normal FP16 range (2**-14).
    """

    value: str
    node: str
    minimum: float
    maximum: float
    small: float

    @property
    def peak(self) -> float:
        """Largest absolute value."""
        return max(-self.minimum, self.maximum)

    @property
    def overflows(self) -> bool:
        """Whether FP32 can hold it and FP16 cannot; what is infinite in FP32 (a mask) is so in FP16, too."""
        return FP16_MAX < self.peak < math.inf

    def merge(self, other: Range) -> Range:
        """Both feeds' ranges in one."""
        return Range(
            self.value,
            self.node,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
            max(self.small, other.small),
        )


def profile(
    model: Model,
    runner: Runner,
    feeds: Iterable[Feeds],
    *,
    chunk: int = CHUNK,
    progress: Callable[[float, str], None] = lambda share, text: None,
) -> dict[str, Range]:
    """Run ``model`` at FP32 and measure every floating value that a node of the main graph makes.

    Args:
        runner: runs models; see ``passes.base``.
        feeds: inputs by name, one mapping a run.
        chunk: values measured in one run; fewer take less memory and more runs.

    Returns:
        value name -> range over all feeds. Values inside subgraphs are not measured.

    Raises:
        ModelRefused: the model does not run.
    """
    every = list(feeds)
    found: dict[str, Range] = {}
    types = solve_types(model.ir)
    names = [v.name or "" for node in model.ir.graph for v in node.outputs if _measurable(node, v, types)]
    pieces = [names[i : i + chunk] for i in range(0, len(names), chunk)]
    done, total = 0, max(1, len(pieces) * len(every))
    for piece in pieces:
        probe, outputs, owners = _probe(model, piece)
        for one in every:
            progress(done / total, f"range profile, {len(piece)} values")
            results = runner.run(probe, one, outputs)
            done += 1
            for index, name in enumerate(piece):
                low, high, small = (float(results[o].reshape(-1)[index]) for o in outputs)
                measured = Range(name, owners[name], min(low, 0.0), max(high, 0.0), small)
                found[name] = found[name].merge(measured) if name in found else measured
    return found


def _measurable(node: ir.Node, value: ir.Value, types: Types) -> bool:
    return bool(value.name) and node.op_type not in ("Constant", "ConstantOfShape") and is_wide(types.get(value))


def _probe(model: Model, wanted: Sequence[str]) -> tuple[Model, list[str], dict[str, str]]:
    """A copy of the model whose outputs are three vectors: minima, maxima, and shares of small elements."""
    probe = model.copy()
    graph = probe.ir.graph
    names = Names(probe.ir)
    builder = Builder(graph, names, probe.opset, "nearest", Constants(graph, names))
    owners: dict[str, str] = {}
    values: dict[str, ir.Value] = {}
    for node in graph:
        for value in node.outputs:
            if value.name:
                values[value.name] = value
                owners[value.name] = label(node)
    columns: list[list[ir.Value]] = [[], [], []]
    for name in wanted:
        for column, number in zip(columns, _numbers(builder, values[name]), strict=True):
            column.append(builder.op("Reshape", [number, builder.ints([1])]))
    outputs = []
    for column in columns:
        joined = builder.op("Concat", column, axis=0)
        joined.shape = ir.Shape([len(column)])
        outputs.append(joined)
    builder.place_last()
    graph.outputs.clear()
    graph.outputs.extend(outputs)
    forget_symbolic_shapes(probe)
    return probe, [v.name or "" for v in outputs], owners


def _numbers(builder: Builder, value: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    single = builder.op("Cast", [value], to=ir.DataType.FLOAT.value) if value.dtype != ir.DataType.FLOAT else value
    # An empty tensor has no largest element: what may be empty gets a zero, which the share does not count.
    flat = builder.op("Reshape", [single, builder.ints([-1])])
    count = builder.op("Size", [flat])
    count.type = ir.TensorType(ir.DataType.INT64)
    count = builder.op("Cast", [count], to=ir.DataType.FLOAT.value)
    shape = value.shape
    if shape is None or any(not isinstance(d, int) or d == 0 for d in shape):
        zero = builder.op("Reshape", [builder.number(0.0), builder.ints([1])])
        flat = builder.op("Concat", [flat, zero], axis=0)
        count = builder.op("Max", [count, builder.number(1.0)])
    size = builder.op("Abs", [flat])
    under = builder.op("Less", [size, builder.number(FP16_NORMAL)])
    over = builder.op("Greater", [size, builder.number(0.0)])
    both = builder.op("And", [under, over])
    for boolean in (under, over, both):
        boolean.type = ir.TensorType(ir.DataType.BOOL)
    small = builder.op("ReduceSum", [builder.op("Cast", [both], to=ir.DataType.FLOAT.value)], keepdims=0)
    share = builder.op("Div", [small, count])
    return builder.op("ReduceMin", [flat], keepdims=0), builder.op("ReduceMax", [flat], keepdims=0), share
