"""The range profile: the largest and smallest elements of each floating-point value, from FP32 runs on the feeds.

The graph itself reduces the elements, so that a run returns only three numbers for each value, whatever its size.
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
from dmlprep.passes.precision.search.measuring import NUMBERS, Probe, in_pieces
from dmlprep.passes.precision.types import is_wide, solve_types
from dmlprep.portable.arrays import Array
from dmlprep.record.aliases import Progress

if TYPE_CHECKING:
    from dmlprep.graph.model.runner import Runner

CHUNK = 250
"""Number of values measured in one run. Each needs 12 more nodes, and ONNX Runtime's loading time grows with the square
of their number."""

Feeds = Mapping[str, Array]


@dataclass(frozen=True)
class Range:
    """The range of one value over all feeds.

    Attributes:
        value, node: places of the value, and of the node that computes it. A place is a name, in a subgraph with the
            path before it (``If_3/then_branch/NAME``).
        minimum, maximum: the smallest element, but at most 0, and the largest element, but at least 0.
        small: share of the elements that are nonzero, but below the normal FP16 range (2**-14); the largest share of
            all feeds.
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
        """Return whether the value exceeds FP16's range, but is finite in FP32.

        An infinity in FP32 (a mask) is right in FP16, too.
        """
        return FP16_MAX < self.peak < math.inf

    def merge(self, other: Range) -> Range:
        """Return the range of the value over both feeds."""
        low, high = min(self.minimum, other.minimum), max(self.maximum, other.maximum)
        return Range(self.value, self.node, low, high, max(self.small, other.small))


def profile(
    model: Model,
    runner: Runner,
    feeds: Iterable[Feeds],
    *,
    chunk: int = CHUNK,
    progress: Progress = lambda share, text: None,
) -> dict[str, Range]:
    """Run ``model`` in FP32 and measure every floating-point value of its nodes, also in bodies of If, Loop and Scan.

    Args:
        feeds: inputs by name, one mapping for each run.
        chunk: values measured in one run; fewer values need less memory and more runs.

    Returns:
        place of a value -> its range over all feeds and all iterations of a loop. The place is the value's name in the
            main graph, and ``If_3/then_branch/NAME`` in a body. A branch that never ran gives 0. Constants, FP16
            values, and values in bodies of other operators (SequenceMap) and in model-local functions, are not
            measured.
    """
    ranges: dict[str, Range] = {}
    owners = _measurable(model)

    def probe(piece: list[str]) -> tuple[Model, str, list[str]]:
        return _probe(model, [owners[place][:2] for place in piece])

    def tell(share: float, count: int) -> None:
        progress(share, f"range profile, {count} values")

    for order, numbers in in_pieces(runner, feeds, list(owners), chunk, probe, tell):
        for place, (below, above, small) in zip(order, numbers.reshape(-1, NUMBERS).tolist(), strict=True):
            measured = Range(place, owners[place][2], -below, above, small)
            ranges[place] = ranges[place].merge(measured) if place in ranges else measured
    return {place: ranges[place] for place in owners if place in ranges}


def _measurable(model: Model) -> dict[str, tuple[str, str, str]]:
    """Map from the place of each value to measure to the path of its graph, its name, and the place of its node."""
    types = solve_types(model.ir)
    measurable: dict[str, tuple[str, str, str]] = {}
    stack: list[tuple[str, ir.Graph]] = [("", model.ir.graph)]
    while stack:
        path, graph = stack.pop()
        for node in graph:
            for value in node.outputs:
                if value.name and node.op_type not in ("Constant", "ConstantOfShape") and is_wide(types.get(value)):
                    measurable[join_path(path, value.name)] = path, value.name, join_path(path, label(node))
            if node.op_type in ("If", "Loop", "Scan") and not node.domain:
                here = join_path(path, label(node))
                stack += [(f"{here}/{name}", body) for name, body in attribute_graphs(node)]
    return measurable


def _probe(model: Model, wanted: Iterable[tuple[str, str]]) -> tuple[Model, str, list[str]]:
    """Return a copy of the model whose only output is the measurements, the output's name, and the places in it.

    ``wanted``: pairs of a graph's path and a value's name.
    """
    probe = model.copy()
    by_graph: dict[str, list[str]] = {}
    for path, name in wanted:
        by_graph.setdefault(path, []).append(name)
    measuring = Probe(probe.ir, probe.opset, by_graph)
    joined = measuring.run()
    probe.ir.graph.outputs.clear()
    probe.ir.graph.outputs.append(joined)
    forget_symbolic_shapes(probe)
    return probe, joined.name or "", measuring.order
