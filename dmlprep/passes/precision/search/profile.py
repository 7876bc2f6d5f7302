"""The range profile: how large and how small every floating value of a model gets, from one FP32 run over the feeds.

The numbers are reduced inside the graph, so that a run brings back three numbers a value, whatever its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from dmlprep.graph.model import Model
from dmlprep.graph.model.walk import attribute_graphs, join_path, label
from dmlprep.passes.precision.emulation.emulate import forget_symbolic_shapes
from dmlprep.passes.precision.fp16 import FP16_MAX
from dmlprep.passes.precision.search.measuring import NUMBERS, Probe
from dmlprep.passes.precision.types import is_wide, solve_types
from dmlprep.portable.arrays import Array
from dmlprep.record.aliases import Progress

if TYPE_CHECKING:
    from dmlprep.graph.model.runner import Runner

CHUNK = 250
"""Values measured in one run: each takes 12 more nodes, and ONNX Runtime's loading time grows with their square."""

Feeds = Mapping[str, Array]


@dataclass(frozen=True)
class Range:
    """What one value was over all feeds.

    Attributes:
        value: its place: its name, with the path of its graph before it in a body.
        node: place of the node that makes it.
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
    progress: Progress = lambda share, text: None,
) -> dict[str, Range]:
    """Run ``model`` at FP32 and measure every floating value that a node makes, in bodies of If, Loop and Scan too.

    Args:
        runner: runs models; see ``passes.base``.
        feeds: inputs by name, one mapping a run.
        chunk: values measured in one run; fewer take less memory and more runs.

    Returns:
        place of a value -> range over all feeds and all turns of a loop: its name in the main graph,
        ``If_3/then_branch/NAME`` in a body. A branch that never ran gives 0. Values in bodies of other operators
        (SequenceMap) and in model-local functions are not measured.

    Raises:
        ModelRefused: the model does not run.
    """
    every = list(feeds)
    found: dict[str, Range] = {}
    owners = _measurable(model)
    places = list(owners)
    pieces = [places[i : i + chunk] for i in range(0, len(places), chunk)]
    done, total = 0, max(1, len(pieces) * len(every))
    for piece in pieces:
        probe, output, order = _probe(model, {place: owners[place][:2] for place in piece})
        for one in every:
            progress(done / total, f"range profile, {len(piece)} values")
            rows = runner.run(probe, one, [output])[output].reshape(-1, NUMBERS)
            done += 1
            for place, (below, above, small) in zip(order, rows.tolist(), strict=True):
                measured = Range(place, owners[place][2], -below, above, small)
                found[place] = found[place].merge(measured) if place in found else measured
    return {place: found[place] for place in places if place in found}


def _measurable(model: Model) -> dict[str, tuple[str, str, str]]:
    """Place of a value -> the path of its graph, its name, and the place of the node that makes it."""
    types = solve_types(model.ir)
    found: dict[str, tuple[str, str, str]] = {}
    stack: list[tuple[str, ir.Graph]] = [("", model.ir.graph)]
    while stack:
        path, graph = stack.pop()
        for node in graph:
            for value in node.outputs:
                if value.name and node.op_type not in ("Constant", "ConstantOfShape") and is_wide(types.get(value)):
                    found[join_path(path, value.name)] = path, value.name, join_path(path, label(node))
            if node.op_type in ("If", "Loop", "Scan") and not node.domain:
                here = join_path(path, label(node))
                stack += [(f"{here}/{name}", body) for name, body in attribute_graphs(node)]
    return found


def _probe(model: Model, wanted: Mapping[str, tuple[str, str]]) -> tuple[Model, str, list[str]]:
    """A copy of the model whose only output is the measurements, with the place of each."""
    probe = model.copy()
    by_graph: dict[str, list[str]] = {}
    for path, name in wanted.values():
        by_graph.setdefault(path, []).append(name)
    measuring = Probe(probe.ir, probe.opset, by_graph)
    joined = measuring.run()
    probe.ir.graph.outputs.clear()
    probe.ir.graph.outputs.append(joined)
    forget_symbolic_shapes(probe)
    return probe, joined.name or "", measuring.order
