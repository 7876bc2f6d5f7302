"""Find the shortest part of a candidate that does not load or run, by bisection from both ends."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlprep.graph.model import Model
from dmlprep.graph.model.sources import Sources
from dmlprep.graph.model.walk import label
from dmlprep.metrics import TOLERANCES
from dmlprep.parity.bisection.finding import Bisection, culprits, inputs_at, named
from dmlprep.parity.bisection.graph_cuts import Cuts, declare, region, subset
from dmlprep.parity.bisection.probe import Prober
from dmlprep.parity.bisection.shrink import Shrinker
from dmlprep.portable.arrays import Array
from dmlprep.record.aliases import Progress, SessionDevice
from dmlprep.runtime import SessionFailure

_BIG = 2**30
"""Largest total size in bytes of the values to record in one run."""


def by_failure(prober: Prober, cuts: Cuts, message: str, device: SessionDevice, progress: Progress) -> Bisection:
    """Find the nodes because of which the candidate does not load or run; return the result.

    The search finds the last node of the failing part, then the first, then makes the part smaller.

    Args:
        message: ONNX Runtime's message about the failure of the whole candidate.
        device: the device of the candidate.
    """
    high, ended = _end(prober, cuts, message, progress)
    part = _start(prober, cuts, high, [v.name for v in cuts.nodes[high].outputs if v.name], device, progress)
    if not part.failure:  # nodes that lead nowhere are in no part
        model, fed = subset(prober.models["candidate"], range(len(cuts.nodes)), {})
        fed = {**inputs_at(prober, cuts, -1, {}, {}), **fed}
        again = prober.shows(model, fed, {}, TOLERANCES["loose"], device)[1]
        part = _Part(model, fed, again) if again else part
    bypassed = 0
    if part.failure:
        small = Shrinker(prober, part.model, part.fed, part.failure, device, progress)
        small.shrink()
        part, bypassed = _Part(small.model, small.fed, small.failure), small.bypassed
    nodes = culprits(cuts, part.model) or [n for n in part.model.ir.graph if n.op_type != "Constant"]
    result = Bisection(
        "found",
        "",
        kind="failure",
        nodes=[label(n) for n in nodes],
        op_types=[n.op_type for n in nodes],
        sources=list(map(Sources(prober.models["candidate"].ir).of, nodes)),
        failure=part.failure or ended,
        reproduced=bool(part.failure),
        part=part.model,
        inputs=part.fed,
    )
    result.reason = f"the candidate does not run with {named(result)}: {result.failure}"
    if bypassed:
        result.reason += f"; {bypassed} nodes between them do not matter and are not in the reproduction"
    if not part.failure:
        result.reason += "; these nodes run alone, so the nodes around them matter"
    return result


def _end(prober: Prober, cuts: Cuts, message: str, progress: Progress) -> tuple[int, str]:
    """Return the index of the last node of the shortest failing beginning of the graph, and its failure message."""
    low, high = -1, len(cuts.nodes) - 1
    while high - low > 1:
        middle = (low + high) // 2
        progress(1 - (high - low) / len(cuts.nodes), f"run {prober.runs + 1}, {high - low} nodes left")
        names = cuts.live(middle)
        if not names:
            low = middle
            continue
        try:
            prober.values("candidate", names)
            low = middle
        except SessionFailure as failure:
            high, message = middle, failure.message
    return high, message


@dataclass(frozen=True)
class _Part:
    """A part of the candidate, with its inputs.

    Attributes:
        fed: arrays by input name; it may also have recorded values of the part's nodes.
        failure: ONNX Runtime's message if the part did not run; empty if it ran.
    """

    model: Model
    fed: dict[str, Array]
    failure: str


def _start(
    prober: Prober, cuts: Cuts, high: int, outputs: list[str], device: SessionDevice, progress: Progress
) -> _Part:
    """Return a part that ends at node ``high`` and fails. Mostly the node alone fails, so try that first.

    Otherwise, if all values fit in memory and the whole beginning runs on the CPU, return that, with all its values
    recorded in ``fed``. If not, return the shortest part. If no part fails alone, the result has no ``failure``.
    """
    one = _attempt(prober, cuts, high - 1, outputs, device)
    if one.failure:
        return one
    if _small(prober.models["candidate"]):  # all values fit in memory, so the start is found with fewer runs
        whole = _attempt(prober, cuts, -1, outputs, device)
        recorded = prober.every(whole.model, whole.fed) if whole.failure else {}
        if recorded:
            return _Part(whole.model, {**whole.fed, **recorded}, whole.failure)
    fails, runs, shortest = -1, high - 1, one
    while runs - fails > 1:
        progress(0.5, f"run {prober.runs + 1}, {runs - fails} positions left for the start")
        middle = (fails + runs) // 2
        tried = _attempt(prober, cuts, middle, outputs, device)
        if tried.failure:
            fails, shortest = middle, tried
        else:
            runs = middle
    if not shortest.failure:
        whole = _attempt(prober, cuts, -1, outputs, device)
        shortest = whole if whole.failure else one
    return shortest


def _small(model: Model) -> bool:
    """Return True if the sizes of all values are known, and together below ``_BIG`` bytes."""
    model = model.copy()
    values = [v for n in model.ir.graph for v in n.outputs if v.name]
    unknown = [v for v in values if v.shape is None]
    model.ir.graph.outputs.extend(v for v in unknown if not v.is_graph_output())
    declare(model.ir, unknown)
    sizes = [v.shape.numpy() if v.shape is not None and v.shape.is_static() else None for v in values]
    return sum(_BIG if size is None else 8 * math.prod(size) for size in sizes) < _BIG


def _attempt(prober: Prober, cuts: Cuts, cut: int, outputs: list[str], device: SessionDevice) -> _Part:
    names = cuts.live(cut)
    values = prober.values("candidate", names) if names else {}
    inputs = inputs_at(prober, cuts, cut, values, values)
    part = region(prober.models["candidate"], inputs, outputs)
    fed = {v.name or "": inputs[v.name or ""] for v in part.ir.graph.inputs}
    _, message = prober.shows(part, fed, {}, TOLERANCES["loose"], device)
    return _Part(part, fed, message)
