"""Find the first node where a candidate differs from its reference, in the stock onnxruntime, by comparing values.

A cut is a position between two nodes. It is *apart* if a value that is computed before it and read after it differs by
more than the tolerance. If a cut is not apart, all later nodes compute from equal values, so the fault is after it.
Otherwise the fault is before it. Each round compares up to 15 cuts in one run of each model, so n nodes take about
log2(n) / 2 runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dmlprep.core.errors import CheckNotRun, InputError
from dmlprep.graph.model import Model
from dmlprep.graph.model.input_watch import Unchanged
from dmlprep.graph.model.sources import Sources
from dmlprep.graph.model.walk import label
from dmlprep.metrics import Tolerance, tolerance_for
from dmlprep.parity.bisection.error_profile import MOST_VALUES, fit_shapes, profile_points, sweep
from dmlprep.parity.bisection.failing import by_failure
from dmlprep.parity.bisection.finding import Bisection, SettingResult, culprits, inputs_at, named, try_settings
from dmlprep.parity.bisection.graph_cuts import Cuts, region
from dmlprep.parity.bisection.matching import match_values
from dmlprep.parity.bisection.probe import Prober, differ
from dmlprep.parity.bisection.repro import check_folder, write_reproduction
from dmlprep.parity.candidate import usable_device
from dmlprep.parity.reference import Reference
from dmlprep.passes.framing import between
from dmlprep.portable.arrays import Array
from dmlprep.record import OutputMetrics
from dmlprep.record.aliases import Progress, SessionDevice
from dmlprep.runtime import SessionFailure, SessionOptions

_AGREE = "every output agrees within the tolerance on this feed"

_CUTS = 15
"""Number of cuts compared in one round. More would need fewer runs, but break up more of what the device fuses."""

_GROWS = 3
"""If a node multiplies the error of its inputs by more than this factor, the result blames the node for it."""

_READERS = 3
"""Number of cuts after the nodes at fault up to which nodes that read their results are added to the reproduction."""


def bisect(
    reference: Path,
    candidate: Path,
    feeds: Sequence[Mapping[str, Array]] | None = None,
    *,
    device: SessionDevice = "cpu",
    tolerance: str = "auto",
    session: SessionOptions | None = None,
    sizes: Mapping[str, int] | None = None,
    matrix: bool = False,
    out: Path | None = None,
    force: bool = False,
    along: bool = False,
    progress: Progress = lambda share, text: None,
) -> Bisection:
    """Find the first node at which ``candidate`` on ``device`` differs from ``reference`` on the CPU.

    Args:
        reference, candidate: models with the same inputs and outputs; the same file to bisect a device.
        feeds: the first one is used; without any, a seeded one.
        tolerance: name of a tolerance, ``rel:0.005`` for a bound, or ``auto``.
        session: options of the candidate's sessions; its time limit applies to every load and run.
        sizes: sizes of free dimensions in a seeded feed.
        matrix: True to try the whole candidate first under each optimisation and fusion setting. If it agrees at full
            optimisation, the search uses the first setting under which it does not.
        out: folder for the model of the nodes and the files that show the fault; they are written only if a node was
            found. ``None``: nothing is written.
        force: True to replace existing files.
        along: True to compare values along the models even if the outputs agree: one more run of each.

    Raises:
        InputError: a model cannot be read or was changed meanwhile, a feed does not fit, or a size is for an unknown
            dimension. Or the candidate has a frame, or the models have no outputs in common.
        UsageError: there is no such tolerance, or the seeded feed is too large.
        ModelRefused, ToolFailed: as ``Model.open``.
        OutputError: ``out`` has such files already, or cannot be written.
        CheckNotRun: no feed can be generated for an input.
    """
    if out is not None:
        check_folder(out, force)
    session = session or SessionOptions()
    began = time.perf_counter()
    files = Unchanged(contents=False)
    opened = files.take_model(candidate)
    original = files.take_model(reference)
    try:
        truth = Reference.of(original, feeds, like=opened, sizes=sizes, seeds=1, time_limit=session.time_limit)
    except CheckNotRun as error:
        raise CheckNotRun(f"no inputs to bisect with: {error.what}", code="DP703", fix=error.fix) from error
    tried: list[SettingResult] = []
    with truth:
        if between(truth.model.ir, opened.ir) is not None:
            what = "the candidate has a frame: its inputs differ from those of the reference"
            fix = "bisect a model prepared without the step 'frame'; compare checks the framed model"
            raise InputError(what, where=str(candidate), code="DP705", fix=fix)
        if matrix:
            tried = try_settings(truth, opened, device=device, tolerance=tolerance, session=session, progress=progress)
            failing = [s.options for s in tried if s.verdict.outcome == "failed"]
            if failing and tried[0].verdict.outcome == "passed":
                session = failing[0]
        chosen = tolerance_for(tolerance, opened, truth.model, device)
        bisection = _bisect(truth, opened, device, chosen, session, progress, along)
    files.check()
    bisection.settings = tried
    bisection.reference, bisection.candidate, bisection.bound = str(reference), str(candidate), chosen.max_rel
    bisection.seconds = time.perf_counter() - began
    if out is not None and bisection.outcome == "found":
        write_reproduction(bisection, out, level=session.optimization, force=force, last_look=files.check)
    return bisection


def _bisect(
    reference: Reference,
    candidate: Model,
    device: SessionDevice,
    chosen: Tolerance,
    session: SessionOptions,
    progress: Progress,
    along: bool,
) -> Bisection:
    reason, info = usable_device(device, session)
    if reason:
        return Bisection("not-run", reason, device=info)
    models = reference.model.copy(), candidate.copy()
    for model in models:
        model.ir.graph.sort()
    try:
        reference.compute(progress)
    except SessionFailure as failure:
        return Bisection("not-run", f"the reference does not run on the CPU: {failure}")
    assert candidate.path is not None
    same_file = reference.path.resolve() == candidate.path.resolve()
    cuts = Cuts(models[1].ir.graph)
    with Prober(models[0], models[1], reference.feeds[0], device, session, session.time_limit) as prober:
        prober.runs = 1  # the reference's own
        try:
            answers = prober.whole("candidate")
        except SessionFailure as failure:
            result = by_failure(prober, cuts, failure.message, device, progress)
        else:
            wanted = dict(reference.outputs(0))
            try:
                result = _Search(prober, cuts, chosen, device, same_file, progress, wanted, answers).result(along)
            except SessionFailure as failure:
                result = Bisection("not-run", f"a part of the models does not run alone: {failure.message}")
    result.total_nodes = len(cuts.nodes)
    result.runs = prober.runs
    result.device = prober.device or info
    result.tolerance = str(chosen)
    return result


def _sentence(result: Bisection, device: SessionDevice, parting: str) -> str:
    worst = max(result.values, key=lambda m: m.max_rel)
    by = worst.note or f"max|d|/max|ref| {worst.max_rel:.3g}"
    if worst.non_finite:
        by = f"{worst.non_finite} elements not finite"
    text = f"{parting} at {named(result)} ({by})"
    if result.hidden:
        text += "; the fault disappears when intermediate values are exposed: the fusion of these nodes causes it"
        text += f", and this fusion is {result.fused_by}" if result.fused_by else ""
    if not result.reproduced:
        already = max((m.max_rel for m in result.before), default=0.0)
        fed = f"its inputs are already {already:.2g} off, within the tolerance"
        if not result.hidden and worst.max_rel > _GROWS * already > 0:
            grows = worst.max_rel / already
            return text + f"; alone it agrees: {fed}, and the node multiplies that error by {grows:.2g}"
        text += "; alone it agrees: small earlier differences add up here, or the nodes around it matter"
        return text + (f" ({fed})" if already else "")
    alone = "together with its consumers it" if result.with_readers else "alone it"
    if device == "cpu":
        return text + f"; {alone} differs too"
    if result.on_cpu:
        return text + f"; {alone} differs on the CPU too: the model is at fault"
    return text + f"; {alone} differs on the device and agrees on the CPU: the device is at fault"


@dataclass
class _Search:
    """The state of a search by values. The fault is after cut ``low``, and before or at cut ``high``.

    Cut ``i`` is the position after node ``i`` of the candidate; -1 is the start.

    Attributes:
        same_file: True if both models are one file, on two devices.
        reference, candidate: values of the last run in which they differed, by the candidate's names; at first the
            outputs.
        known: names of the reference's values by the names of the candidate's values that match them.
        apart: metrics of the values that differ at ``high``.
        hidden: True if exposing values as outputs hides the fault.
        metrics: metrics of all values that were compared, by name.
    """

    prober: Prober
    cuts: Cuts
    tolerance: Tolerance
    device: SessionDevice
    same_file: bool
    progress: Progress
    reference: dict[str, Array]
    candidate: dict[str, Array]
    low: int = -1
    high: int = field(init=False)
    outputs: frozenset[str] = field(init=False)
    known: dict[str, str] = field(default_factory=dict)
    apart: list[OutputMetrics] = field(default_factory=list)
    hidden: bool = False
    metrics: dict[str, OutputMetrics] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.high, self.outputs = len(self.cuts.nodes) - 1, frozenset(self.reference)

    def result(self, along: bool) -> Bisection:
        """Compare the outputs; if they differ, search for the first node; return the result.

        ``along``: True to compare values along the models even if the outputs agree.
        """
        models = self.prober.models
        common = [name for name in self.reference if name in self.candidate]
        if not common:
            raise InputError("the two models have no common outputs", where=str(models["candidate"].path))
        self.metrics = {n: differ(n, self.reference[n], self.candidate[n], self.tolerance) for n in common}
        self.apart = [m for m in self.metrics.values() if not m.passed]
        if not self.apart and not along:
            return Bisection("agree", _AGREE, along=profile_points(self.cuts, self.metrics))
        graphs = models["candidate"].ir.graph, models["reference"].ir.graph
        self.known = {**match_values(graphs[0], graphs[0] if self.same_file else graphs[1]), **{n: n for n in common}}
        if not self.apart:
            swept = sweep(self.prober, self.cuts, self.known, self.tolerance)
            return Bisection("agree", _AGREE, along=profile_points(self.cuts, {**swept, **self.metrics}))
        self._narrow()
        bisection = self._conclude()
        bisection.along = profile_points(self.cuts, self.metrics)
        return bisection

    def _narrow(self) -> None:
        """Move ``low`` and ``high`` towards each other until no comparable cut is between them.

        If exposing the values at a single cut hides the fault, ``_narrow_fused`` continues from that cut.
        """
        most = _CUTS
        while inner := self._between():
            self._tell(len(inner))
            chosen, names = self._choose(inner, most)
            if self._look(chosen, names):
                continue
            # Exposing these values hides the fault: fewer in one run leave more of the fusion intact.
            if most == 1:
                self._narrow_fused(chosen[0])
                return
            most = max(1, most // 4)

    def _narrow_fused(self, hiding: int) -> None:
        """Move ``low`` and ``high`` from both sides to the fused nodes around cut ``hiding``.

        Exposing the values at that cut hides the fault. ``hidden`` becomes True if cuts remain between the two.
        """
        for before in (True, False):
            edge = hiding
            while side := [c for c in self._between() if (c < edge if before else c > edge)]:
                self._tell(len(side), " next to a fusion")
                chosen = [side[len(side) // 2]]
                if not self._look(chosen, self._across(chosen)):
                    edge = chosen[0]
        self.hidden = bool(self._between())

    def _tell(self, remaining: int, where: str = "") -> None:
        self.progress(
            1 - remaining / len(self.cuts.nodes), f"run {self.prober.runs + 1}, {remaining} positions left{where}"
        )

    def _between(self) -> list[int]:
        return [cut for cut in self.cuts.whole(self.known) if self.low < cut < self.high]

    def _look(self, chosen: Sequence[int], names: Sequence[str]) -> bool:
        """Run each model once with values exposed as outputs, compare them, and move ``low`` and ``high``.

        Values whose shapes contradict are removed from ``known`` instead; then neither moves, and the result is True.

        Args:
            chosen: the cuts to compare.
            names: names of the values to expose, those at the cuts.

        Returns:
            False if no cut differs any more, because exposing the values hides the fault; otherwise True.
        """
        reference = self._reference_values(names)
        candidate = self.prober.values("candidate", names)
        strangers = fit_shapes(reference, candidate) - self.outputs
        if strangers:
            # A simplifier used the name for another value: these have no counterpart, so no cut may go through them.
            for name in strangers:
                del self.known[name]
            return True
        both = [n for n in names if n in reference and n in candidate]
        metrics = {n: differ(n, reference[n], candidate[n], self.tolerance) for n in both}
        self.metrics.update(metrics)
        low = self.low
        for cut in [*chosen, self.high]:
            apart = [metrics[n] for n in self.cuts.live(cut) if n in metrics and not metrics[n].passed]
            if apart:
                self.low, self.high, self.apart = low, cut, apart
                self.reference, self.candidate = reference, candidate
                return True
            low = cut
        return False

    def _choose(self, inner: Sequence[int], most: int) -> tuple[list[int], list[str]]:
        """Return at most ``most`` evenly spread cuts of ``inner`` to compare, and the names of the values to expose."""
        count = min(most, len(inner))
        while True:
            chosen = sorted({inner[(k + 1) * len(inner) // (count + 1)] for k in range(count)})
            names = self._across(chosen)
            if len(names) <= MOST_VALUES or count == 1:
                return chosen, names
            count = max(1, count // 2)

    def _across(self, chosen: Sequence[int]) -> list[str]:
        """Return the names of values that are computed before and read after one of the cuts, ``low`` or ``high``."""
        return list(dict.fromkeys(n for cut in [self.low, *chosen, self.high] for n in self.cuts.live(cut)))

    def _reference_values(self, names: Sequence[str]) -> dict[str, Array]:
        values = self.prober.values("reference", dict.fromkeys(self.known[n] for n in names if n in self.known))
        return {n: values[self.known[n]] for n in names if n in self.known and self.known[n] in values}

    def _conclude(self) -> Bisection:
        """Run only the nodes between ``low`` and ``high`` on the reference's values, and return the result."""
        inputs = inputs_at(self.prober, self.cuts, self.low, self.reference, self.candidate)
        outputs = [m.output for m in self.apart]
        part = region(self.prober.models["candidate"], inputs, outputs)
        nodes = culprits(self.cuts, part)
        labels, kinds = [label(n) for n in nodes], [n.op_type for n in nodes]
        result = Bisection("found", "", nodes=labels, op_types=kinds, values=self.apart, hidden=self.hidden)
        result.sources = list(map(Sources(self.prober.models["candidate"].ir).of, nodes))

        def shown(part: Model, expected: dict[str, Array]) -> bool:
            result.part, result.expected = part, expected
            result.inputs = {v.name or "": inputs[v.name or ""] for v in part.ir.graph.inputs}
            return self._shows(result, part, self.device)

        alone = {n: self.reference[n] for n in outputs}
        result.reproduced = shown(part, alone)
        if self.hidden and not result.reproduced:
            # ONNX Runtime does not fuse a node whose result is a graph output: include the nodes that read it.
            for cut in [c for c in self.cuts.whole(self.known) if c > self.high][:_READERS]:
                names = [n for n in self.cuts.live(cut) if n not in inputs]
                expected, answers = self._reference_values(names), self.prober.values("candidate", names)
                strangers = fit_shapes(expected, answers)
                expected = {n: a for n, a in expected.items() if n in answers and n not in strangers}
                result.reproduced = result.with_readers = shown(
                    region(self.prober.models["candidate"], inputs, expected), expected
                )
                if result.reproduced:
                    break
            else:
                shown(part, alone)
        assert result.part is not None
        if self.hidden and result.reproduced:
            result.fused_by = self._fused_by(result, result.part)
        if self.device != "cpu" and result.reproduced:
            result.on_cpu = self._shows(result, result.part, "cpu")
        elif self.device == "cpu":
            result.on_cpu = result.reproduced
        if not result.reproduced:
            fed = [n for n in result.inputs if n in self.reference and n in self.candidate]
            result.before = [differ(n, self.reference[n], self.candidate[n], self.tolerance) for n in fed]
        parting = "the device first differs" if self.same_file else "the models first differ"
        result.reason = _sentence(result, self.device, parting)
        return result

    def _fused_by(self, result: Bisection, part: Model) -> str:
        """Return in words who fuses the nodes of ``part``, ONNX Runtime or DirectML; empty if unknown.

        The part runs without each of the two fusions.
        """
        if not self._shows(result, part, self.device, SessionOptions(optimization="basic")):
            return "ONNX Runtime's (with graph optimisation basic it agrees)"
        unfused = self._shows(result, part, self.device, SessionOptions(unfused=True))
        return "DirectML's (unfused it agrees)" if self.device == "dml" and not unfused else ""

    def _shows(
        self, result: Bisection, part: Model, device: SessionDevice, options: SessionOptions | None = None
    ) -> bool:
        return self.prober.shows(part, result.inputs, result.expected, self.tolerance, device, options)[0]
