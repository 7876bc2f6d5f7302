"""Find the first node at which a candidate parts from its reference, with the stock onnxruntime: by values, cut by cut.

A cut is *apart* when any value that lives across it differs by more than the tolerance. Where a cut is not apart,
everything behind it computes from equal values, so the fault lies behind; where it is, the fault lies before. Each
round looks at up to 15 cuts in one run of each model, so n nodes take about log2(n) / 2 runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dmlprep.errors import CheckNotRun, InputError
from dmlprep.model import Model
from dmlprep.model.walk import label
from dmlprep.parity.candidate import Device, usable_device
from dmlprep.parity.cuts import Cuts, region
from dmlprep.parity.failing import by_failure
from dmlprep.parity.finding import Bisection, culprits, inputs_at, named
from dmlprep.parity.matching import match_values
from dmlprep.parity.probe import Prober, differ
from dmlprep.parity.reference import Reference
from dmlprep.parity.tolerances import Tolerance, choose_tolerance
from dmlprep.parity.traits import holds_fp16, quantizes
from dmlprep.record import DeviceInfo, OutputMetrics

if TYPE_CHECKING:
    from dmlprep.runtime import SessionOptions

__all__ = ["Bisection", "bisect"]

Array = np.ndarray[Any, Any]

_CUTS = 15
"""Cuts looked at in one round. More would need fewer runs, and break up more of what the device fuses."""

_MOST_VALUES = 96
"""Values brought out in one run."""


@dataclass
class _Search:
    """The bounds of a search and what was seen at them: the fault lies behind cut ``low`` and at or before cut
    ``high``."""

    low: int
    high: int
    reference: dict[str, Array]
    candidate: dict[str, Array]
    apart: list[OutputMetrics]
    hidden: bool = False


def bisect(
    reference: Path | Reference,
    candidate: Path,
    feeds: Sequence[Mapping[str, Array]] | None = None,
    *,
    device: Device = "cpu",
    tolerance: str = "auto",
    session: SessionOptions | None = None,
    sizes: Mapping[str, int] | None = None,
    time_limit: float = 600.0,
    progress: Callable[[float, str], None] = lambda share, text: None,
) -> Bisection:
    """Find where ``candidate`` on ``device`` parts from ``reference`` on the CPU.

    Args:
        reference, candidate: models with the same inputs and outputs; the same file to bisect a device.
        feeds: the first one is used; a seeded one where there is none.
        tolerance: as in ``compare``.
        session: how the candidate's sessions are opened.

    Raises:
        InputError: a model cannot be read, a feed does not fit, or the models have no outputs in common.
    """
    reason, info = usable_device(device)
    if reason:
        return Bisection("not-run", reason, device=info)
    if isinstance(reference, Reference):
        return _bisect(reference, candidate, device, info, tolerance, session, time_limit, progress)
    try:
        made = Reference.of(reference, feeds, like=candidate, sizes=sizes, seeds=1, time_limit=time_limit)
    except CheckNotRun as error:
        return Bisection("not-run", str(error))
    with made:
        return _bisect(made, candidate, device, info, tolerance, session, time_limit, progress)


def _bisect(
    reference: Reference,
    candidate: Path,
    device: Device,
    info: DeviceInfo | None,
    tolerance: str,
    session: SessionOptions | None,
    time_limit: float,
    progress: Callable[[float, str], None],
) -> Bisection:
    from dmlprep.runtime import SessionFailure, SessionOptions

    models = Model.open(reference.path), Model.open(candidate)
    for model in models:
        model.ir.graph.sort()
    try:
        reference.compute(progress)
    except SessionFailure as failure:
        return Bisection("not-run", f"the reference does not run on the CPU: {failure}")
    chosen = choose_tolerance(tolerance, fp16=holds_fp16(models[1]), quantized=quantizes(models[1]), device=device)
    options = replace(session or SessionOptions(), time_limit=time_limit)
    same_file = reference.path.resolve() == candidate.resolve()
    cuts = Cuts(models[1].ir.graph)
    with Prober(models[0], models[1], reference.feeds[0], device, options, time_limit) as prober:
        prober.runs = 1  # the reference's own
        try:
            answers = prober.whole("candidate")
        except SessionFailure as failure:
            result = by_failure(prober, cuts, failure.message, device, progress)
        else:
            wanted = dict(reference.outputs(0))
            try:
                result = _by_values(prober, cuts, wanted, answers, chosen, same_file, device, progress)
            except SessionFailure as failure:
                result = Bisection("not-run", f"a part of the models does not run by itself: {failure.message}")
    result.total_nodes = len(cuts.nodes)
    result.runs = prober.runs
    result.device = prober.device or info
    result.tolerance = str(chosen)
    return result


def _by_values(
    prober: Prober,
    cuts: Cuts,
    wanted: dict[str, Array],
    answers: dict[str, Array],
    tolerance: Tolerance,
    same_file: bool,
    device: Device,
    progress: Callable[[float, str], None],
) -> Bisection:
    common = [name for name in wanted if name in answers]
    if not common:
        raise InputError("the two models have no outputs in common", where=str(prober.models["candidate"].path))
    apart = [m for m in (differ(n, wanted[n], answers[n], tolerance) for n in common) if not m.passed]
    if not apart:
        return Bisection("agree", "every output agrees within the tolerance on this feed")
    graphs = prober.models["candidate"].ir.graph, prober.models["reference"].ir.graph
    known = match_values(graphs[0], graphs[0] if same_file else graphs[1])
    known.update({name: name for name in common})
    search = _Search(-1, len(cuts.nodes) - 1, dict(wanted), dict(answers), apart)
    _narrow(prober, cuts, known, search, tolerance, progress)
    return _conclude(prober, cuts, search, tolerance, device)


def _narrow(
    prober: Prober,
    cuts: Cuts,
    known: Mapping[str, str],
    search: _Search,
    tolerance: Tolerance,
    progress: Callable[[float, str], None],
) -> None:
    """Move the bounds of ``search`` together as far as cuts lie between them."""
    whole = cuts.whole(known)
    most = _CUTS
    while inner := [cut for cut in whole if search.low < cut < search.high]:
        progress(1 - len(inner) / len(cuts.nodes), f"run {prober.runs + 1}, {len(inner)} places left")
        chosen, names = _choose(cuts, inner, search, most)
        reference = _reference_values(prober, names, known)
        candidate = prober.values("candidate", names)
        seen = {n: differ(n, reference[n], candidate[n], tolerance) for n in names if n in reference and n in candidate}
        low = search.low
        for cut in [*chosen, search.high]:
            apart = [seen[n] for n in cuts.live(cut) if n in seen and not seen[n].passed]
            if apart:
                search.low, search.high, search.apart = low, cut, apart
                search.reference, search.candidate = reference, candidate
                break
            low = cut
        else:
            # With these values brought out the fault is gone: fewer at once leave more of the fusion as it was.
            if most == 1:
                search.hidden = True
                return
            most = max(1, most // 4)


def _choose(cuts: Cuts, inner: Sequence[int], search: _Search, most: int) -> tuple[list[int], list[str]]:
    """Cuts to look at, evenly spread, and the values that live across them and across the bounds."""
    count = min(most, len(inner))
    while True:
        chosen = (
            sorted({inner[(k + 1) * len(inner) // (count + 1)] for k in range(count)})
            if count < len(inner)
            else list(inner)
        )
        bounds = [search.low, *chosen, search.high]
        names = list(dict.fromkeys(n for cut in bounds for n in cuts.live(cut)))
        if len(names) <= _MOST_VALUES or count == 1:
            return chosen, names
        count = max(1, count // 2)


def _reference_values(prober: Prober, names: Sequence[str], known: Mapping[str, str]) -> dict[str, Array]:
    found = prober.values("reference", dict.fromkeys(known[n] for n in names if n in known))
    return {n: found[known[n]] for n in names if n in known and known[n] in found}


def _conclude(prober: Prober, cuts: Cuts, search: _Search, tolerance: Tolerance, device: Device) -> Bisection:
    """Cut out the nodes between the bounds, feed them the reference's values, and see whether they show the fault."""
    inputs = inputs_at(prober, cuts, search.low, search.reference, search.candidate)
    outputs = [m.output for m in search.apart]
    part = region(prober.models["candidate"], inputs, outputs)
    nodes = culprits(cuts, part)
    expected = {n: search.reference[n] for n in outputs}
    fed = {v.name or "": inputs[v.name or ""] for v in part.ir.graph.inputs}
    result = Bisection(
        "found",
        "",
        nodes=[label(n) for n in nodes],
        op_types=[n.op_type for n in nodes],
        values=search.apart,
        hidden=search.hidden,
        part=part,
        inputs=fed,
        expected=expected,
    )
    result.reproduced, _ = prober.shows(part, fed, expected, tolerance, device)
    if device != "cpu" and result.reproduced:
        result.on_cpu, _ = prober.shows(part, fed, expected, tolerance, "cpu")
    elif device == "cpu":
        result.on_cpu = result.reproduced
    result.reason = _sentence(result, device)
    return result


def _sentence(result: Bisection, device: Device) -> str:
    worst = max(result.values, key=lambda m: m.max_rel)
    by = f"{worst.non_finite} elements not finite" if worst.non_finite else f"max|d|/max|ref| {worst.max_rel:.3g}"
    text = f"the models part at {named(result)} ({by})"
    if result.hidden:
        text += "; the fault goes away when values between them are brought out, so it lies in how they are fused"
    if not result.reproduced:
        return text + "; alone it agrees, so small differences before it add up here, or its surroundings matter"
    if device != "cpu":
        return text + (
            "; alone it differs on the CPU too: the model is at fault"
            if result.on_cpu
            else "; alone it differs on the device and agrees on the CPU: the device is at fault"
        )
    return text + "; alone it differs too"
