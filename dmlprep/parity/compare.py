"""Compare a candidate on a device with the original on the CPU. A check that did not run never counts as passed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dmlprep.core.errors import CheckNotRun
from dmlprep.metrics import Tolerance, degenerate, holds_fp16, proves, tells_something, tolerance_for
from dmlprep.parity.candidate import Candidate, usable_device
from dmlprep.parity.feeds.files import feed_name
from dmlprep.parity.feeds.graph_feeds import fit_shapes
from dmlprep.parity.judging import Judge, difference, no_output
from dmlprep.parity.optimization_levels import at_some_level
from dmlprep.parity.reference import Reference
from dmlprep.parity.trial import Trial
from dmlprep.record import Finding, OutputMetrics, Verdict, finding
from dmlprep.record.aliases import Progress
from dmlprep.runtime import SessionFailure, SessionOptions, another_release
from dmlprep.runtime.types import NO_SPINNING


def compare(
    reference: Reference,
    candidate: Candidate,
    tolerance: str = "auto",
    time_limit: float = 600.0,
    session: SessionOptions | None = None,
    progress: Progress = lambda share, text: None,
) -> Verdict:
    """Run both models in child processes, compare their outputs feed by feed, and return the verdict.

    Args:
        reference: the original with its feeds; it runs on the CPU, unless its outputs are known already.
        candidate: the model to judge, with its device.
        tolerance: a name of ``TOLERANCES``, ``rel:0.005``, or ``auto``.
        time_limit: limit in seconds for each load and each run.
        session: options of the candidate's session (adapter, sizes of free dimensions).
        progress: called with the share done (0 to 1) and a text about the current work.

    Returns:
        the verdict:

        - ``passed`` only if every output of every feed was compared and is within the tolerance. A user's metric
          decides instead of the tolerance.
        - ``failed`` also if the candidate does not load, crashes, hangs or is killed, except as ``Trial.ended`` lists.
        - ``not-proven`` if the original's outputs on these feeds prove nothing (``metrics.degenerate``).
        - ``not-run`` if the device, the reference or a feed is not available, a limit was reached, or the original
          gives no numbers or random ones.

    Raises:
        InputError: a user's feed does not fit the candidate, or the user's metric fails.
        UsageError: there is no such tolerance, or Pillow is missing for a frame.
    """
    fp16 = candidate.kind == "fp16-emulation" or holds_fp16(candidate.model)
    chosen = tolerance_for(tolerance, candidate.model, reference.model, candidate.kind)
    trial = Trial(candidate.check, candidate.device, chosen, tolerance, candidate.decides, candidate.ours)
    fit_shapes(candidate.model, reference.feeds, candidate.where)
    reason, info = usable_device(candidate.device, session)
    if reason:
        return trial.not_run(reason, info)
    if (nothing := _nothing_to_compare(reference, trial, progress)) is not None:
        return nothing
    noise, unmeasured = reference.noise(progress) if chosen.max_rel > 0 else ({}, "")
    weak = degenerate(reference.groups(), [reference.outputs(i) for i in range(len(reference.feeds))], chosen)
    options = session or SessionOptions()
    options = replace(options, time_limit=time_limit, config={**NO_SPINNING, **options.config})

    def run(asked: SessionOptions) -> _Answered:
        judge = Judge(reference.groups(), chosen, noise, weak, reference.judging_options.metric)
        return _answers(reference, candidate, trial, judge, asked, progress)

    try:
        answered, lowered = at_some_level(run, options, candidate.lower)
    except SessionFailure as failure:
        if (ended := trial.ended(failure, options, info)) is not None:
            return ended
        text = f"the candidate does not run: {failure}"
        return trial.failed(finding("DP704", text, severity="error", kind=failure.kind))
    except CheckNotRun as error:
        return trial.not_run(str(error))
    if lowered is not None:
        trial.lowered(lowered)
    if answered.missing:
        return trial.failed(no_output("the candidate", answered.missing, candidate.code), answered.feeds)
    results = answered.judge.results
    left_out = set(reference.outputs(0)) - {m.output for m in results}
    if left_out:
        return trial.failed(no_output("the comparison", min(left_out), candidate.code))
    if not answered.judge.decided and (drawn := reference.random_node()):
        text = (
            f"the original draws random numbers ({drawn}): its outputs "
            "differ in each run; if an input scales them, pin it to 0"
        )
        return trial.not_run(text)
    if not results:
        return trial.not_run("no output was compared")
    _describe(trial, fp16, reference, options.release, unmeasured)
    verdict = trial.verdict(len(reference.feeds))
    return answered.judge.judged(verdict, partial(_differs, candidate, chosen), candidate.code or "DP701")


def _nothing_to_compare(reference: Reference, trial: Trial, progress: Progress) -> Verdict | None:
    """Run the original; return a verdict ``not-run`` if it gives no outputs to compare with, otherwise ``None``."""
    if not reference.feeds:
        return trial.not_run("there are no feeds")
    try:
        count = reference.compute(progress)
    except SessionFailure as failure:
        if failure.kind == "limit":
            return trial.not_run(
                f"limit exceeded by the original: {failure.message}; {failure.next_step}", failure=failure
            )
        return trial.not_run(f"the original does not run on the CPU, so it cannot be compared: {failure}")
    if count == 0:
        return trial.not_run("the model has no outputs")
    if not any(tells_something(a) for index in range(len(reference.feeds)) for a in reference.outputs(index).values()):
        return trial.not_run("every output of the original is empty, NaN or infinite: no number to compare")
    return None


@dataclass(frozen=True)
class _Answered:
    """The state after a candidate's answers.

    Attributes:
        judge: collector of the comparisons.
        missing: name of an output of the original that the candidate does not have; empty if it has all.
        feeds: number of feeds compared before an output was ``missing``; 0 if none was.
    """

    judge: Judge
    missing: str = ""
    feeds: int = 0


def _answers(
    reference: Reference, candidate: Candidate, trial: Trial, judge: Judge, options: SessionOptions, progress: Progress
) -> _Answered:
    total = len(reference.feeds)
    with closing(candidate.answers(reference.feeds, options)) as answers:
        for index in range(total):
            progress(index / total, f"feed {index + 1} of {total}, {candidate.check}")
            trial.info, outputs = next(answers)
            missing = sorted(set(reference.outputs(index)) - set(outputs))
            if missing:
                return _Answered(judge, missing[0], index)
            judge.add(reference.outputs(index), outputs, feed_name(reference.feeds[index], index + 1))
    return _Answered(judge)


def _describe(trial: Trial, fp16: bool, reference: Reference, release: str, unmeasured: str) -> None:
    """Add details to the device in the verdict under construction.

    They are the limits of a proof on this device, how the original was run, and a release of DirectML other than
    ``release``. ``unmeasured`` is the reason why the original's own noise was not measured.
    """
    if trial.info is None:
        return
    other = reference.device if reference.device is not None and reference.device.provider != "cpu" else None
    by = f"reference by {other}" if other is not None else ""
    at = f"the original at {reference.lowered}" if reference.lowered is not None else ""
    as_mended = "the original with repairs (it does not load without them)" if reference.mended else ""
    as_written = f"the original with {reference.written_out}" if reference.written_out else ""
    other_release = another_release(trial.info, release) if trial.device == "dml" else ""
    noise = f"the original's own noise was not measured: {unmeasured}" if unmeasured else ""
    trial.info = trial.info.also(proves(fp16, trial.info), by, at, as_mended, as_written, other_release, noise)


def _differs(candidate: Candidate, tolerance: Tolerance, metrics: OutputMetrics) -> Finding:
    one = difference(metrics, tolerance)
    if not candidate.code:
        return one
    severity: Any = None if candidate.decides else "warning"
    facts: dict[str, Any] = one.facts
    return finding(candidate.code, f"{candidate.check}: {one.message}", node=one.node, severity=severity, **facts)
