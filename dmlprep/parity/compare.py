"""Compare a candidate on a device with the original on the CPU, in child processes. Not run is never passed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dmlprep.arrays import Array
from dmlprep.errors import CheckNotRun
from dmlprep.metrics import (
    Tolerance,
    choose_tolerance,
    degenerate,
    has_few_bits,
    holds_fp16,
    proves,
    quantizes,
    tells_something,
)
from dmlprep.model import Model
from dmlprep.parity.candidate import Candidate, file_candidate, software_device, usable_device
from dmlprep.parity.feeds import fit_shapes
from dmlprep.parity.judging import Judge, difference, no_output
from dmlprep.parity.optimization_levels import Lowered, at_some_level
from dmlprep.parity.reference import Reference
from dmlprep.parity.yardstick import Yardstick
from dmlprep.record import Check, DeviceInfo, Finding, OutputMetrics, Verdict, finding
from dmlprep.record.aliases import Progress, SessionDevice

if TYPE_CHECKING:
    from dmlprep.runtime import SessionFailure, SessionHost, SessionOptions

__all__ = ["compare", "compare_candidate", "not_run"]

_NO_ADAPTER = "887A0002"
"""DXGI_ERROR_NOT_FOUND (winerror.h): what asking for an adapter that is not there gives."""


def compare(
    reference: Path | Reference,
    candidate: Path | Model,
    feeds: Sequence[Mapping[str, Array]] | None = None,
    *,
    device: SessionDevice = "cpu",
    tolerance: str = "auto",
    time_limit: float = 600.0,
    session: SessionOptions | None = None,
    sizes: Mapping[str, int] | None = None,
    seeds: int = 2,
    progress: Progress = lambda share, text: None,
    retreat: bool = True,
    host: SessionHost | None = None,
    yardstick: Yardstick = Yardstick(),  # noqa: B008 - frozen
) -> Verdict:
    """Compare ``candidate`` on a device with ``reference`` on the CPU, feed by feed and output by output.

    Args:
        reference: the original, or a ``Reference`` whose outputs are computed already.
        candidate: a model file, or what was opened from it.
        feeds: the user's; seeded ones of the candidate's sizes are made where there are none. A ``Reference`` has its
            own.
        device: ``cpu`` or ``dml``.
        tolerance: a name of ``TOLERANCES``, ``rel:0.005``, or ``auto``.
        time_limit: seconds for one load or one run.
        session: how the candidate's session is opened (adapter, overrides of free dimensions).
        sizes: sizes for dimensions that stay free.
        seeds: how many feeds are made.
        retreat: on the CPU, try an FP16 candidate that does not run at the default optimisation at lower levels.
        host: serves the candidate where the device is the CPU; without one it has a worker of its own.
        yardstick: what the user says of how outputs are judged. A ``Reference`` has its own.

    Returns:
        ``passed`` only where every output of every feed was compared and is within the tolerance; ``failed`` also where
        the candidate does not load, crashes, hangs or is killed; ``not-proven`` where the original's outputs on these
        feeds prove nothing (``metrics.degenerate``); ``not-run`` where the device, the reference or a feed is not to be
        had.

    Raises:
        InputError: a model cannot be read, or a feed of the user's does not fit.
        UsageError: there is no such tolerance.
    """
    began = time.perf_counter()
    opened = candidate if isinstance(candidate, Model) else Model.open(candidate)
    compared = file_candidate(opened, device, retreat=retreat, host=host)
    if isinstance(reference, Reference):
        return compare_candidate(reference, compared, tolerance, time_limit, session, progress)
    try:
        made = Reference.of(
            reference, feeds, like=opened, sizes=sizes, seeds=seeds, time_limit=time_limit, yardstick=yardstick
        )
    except CheckNotRun as error:
        return not_run(compared.check, str(error), None, began)
    with made:
        return compare_candidate(made, compared, tolerance, time_limit, session, progress)


def compare_candidate(
    reference: Reference,
    candidate: Candidate,
    tolerance: str = "auto",
    time_limit: float = 600.0,
    session: SessionOptions | None = None,
    progress: Progress = lambda share, text: None,
) -> Verdict:
    """As ``compare``, for any candidate."""
    from dmlprep.runtime import SessionFailure, SessionOptions
    from dmlprep.runtime.ort_messages import newest_opset

    began = time.perf_counter()
    fp16 = candidate.kind == "fp16-emulation" or holds_fp16(candidate.model)
    few_bits = has_few_bits(candidate.model) and not has_few_bits(reference.model)
    quantized = quantizes(candidate.model)
    chosen = choose_tolerance(tolerance, fp16=fp16, quantized=quantized, device=candidate.kind, few_bits=few_bits)
    fit_shapes(candidate.model, reference.feeds, candidate.where)

    def unsaid(reason: str, info: DeviceInfo | None = None, failure: SessionFailure | None = None) -> Verdict:
        return not_run(
            candidate.check,
            reason,
            info,
            began,
            chosen,
            decides=candidate.decides,
            failure=failure,
        )

    reason, info = usable_device(candidate.device, session)
    if reason:
        return unsaid(reason, info)
    if not reference.feeds:
        return unsaid("there are no feeds")
    try:
        count = reference.compute(progress)
    except SessionFailure as failure:
        if failure.kind == "limit":
            return unsaid(f"limit: the original: {failure.message}; {failure.next_step}", failure=failure)
        return unsaid(f"the original does not run on the CPU, so there is nothing to compare with: {failure}")
    if count == 0:
        return unsaid("the model has no outputs")
    if not any(tells_something(a) for index in range(len(reference.feeds)) for a in reference.outputs(index).values()):
        return unsaid("every output of the original is empty, NaN or infinite: there is no number to compare")
    noise, unmeasured = reference.noise(progress) if chosen.max_rel > 0 else ({}, "")
    weak = degenerate(reference.groups(), [reference.outputs(i) for i in range(len(reference.feeds))], noise, chosen)
    made = _Made(candidate, chosen, tolerance, began)
    options = replace(session or SessionOptions(), time_limit=time_limit)
    try:
        answered, lowered = at_some_level(
            lambda asked: _answers(reference, made, noise, weak, asked, progress), options, candidate.lower
        )
    except SessionFailure as failure:
        if options.device_id is not None and _NO_ADAPTER in failure.hresult:
            return unsaid(f"there is no DirectML adapter {options.device_id} ({failure.hresult})", made.device)
        if failure.kind == "timeout" and software_device(candidate.device, made.device or info):
            text = f"out of time: {failure.message}; {failure.next_step}"
            return unsaid(text, made.device or info, failure)
        if failure.kind == "limit":
            return unsaid(f"limit: {failure.message}; {failure.next_step}", made.device or info, failure)
        if failure.kind == "memory":
            text = f"out of memory: {failure.message}; {failure.next_step}"
            return unsaid(text, made.device or info, failure)
        if candidate.ours:
            return unsaid(f"it does not run on the CPU: {failure.message}", made.device)
        if too_new := newest_opset(failure.message):
            return unsaid(
                f"the ONNX Runtime of this environment loads opset {too_new[1]} at most, the candidate is of opset "
                f"{too_new[0]}: install a newer one, or prepare for an older release (dmlprep target list)",
                made.device,
            )
        text = f"the candidate does not run: {failure}"
        return made.failed(finding("DP704", text, severity="error", kind=failure.kind))
    except CheckNotRun as error:
        return unsaid(str(error), made.device)
    if lowered is not None:
        made.lowered(lowered)
    if answered.missing:
        return made.failed(no_output("the candidate", answered.missing, candidate.code), answered.feeds)
    results = answered.judge.results
    left_out = set(reference.outputs(0)) - {m.output for m in results}
    if left_out:
        return made.failed(no_output("the comparison", min(left_out), candidate.code))
    if not answered.judge.decided and (drawn := reference.random_node()):
        return unsaid(
            f"the original draws random numbers ({drawn}), and gives other outputs on the same feed each time",
            made.device,
        )
    if not results:
        return unsaid("no output was compared", made.device)
    made.describe(fp16, reference, options.release, unmeasured)
    return made.judged(answered.judge, len(reference.feeds))


@dataclass
class _Answered:
    """What a candidate answered: its outputs compared so far, and the first output that it does not have."""

    judge: Judge
    missing: str = ""
    feeds: int = 0


def _answers(
    reference: Reference,
    made: _Made,
    noise: Mapping[str, float],
    weak: Mapping[str, str],
    options: SessionOptions,
    progress: Progress,
) -> _Answered:
    answered = _Answered(Judge(reference.groups(), made.tolerance, noise, weak, reference.yardstick.metric))
    total = len(reference.feeds)
    with closing(made.candidate.answers(reference.feeds, options)) as answers:
        for index in range(total):
            progress(index / total, f"feed {index + 1} of {total}, {made.candidate.check}")
            made.device, outputs = next(answers)
            missing = sorted(set(reference.outputs(index)) - set(outputs))
            if missing:
                answered.missing, answered.feeds = missing[0], index
                break
            answered.judge.add(reference.outputs(index), outputs)
    return answered


class _Made:
    """A verdict in the making."""

    def __init__(self, candidate: Candidate, tolerance: Tolerance, setting: str, began: float) -> None:
        self.candidate = candidate
        self.tolerance, self._setting = tolerance, setting
        self.device: DeviceInfo | None = None
        self._began = began
        self._findings: list[Finding] = []

    def _say(self, *details: str) -> None:
        if self.device is not None:
            self.device = self.device.also(*details)

    def lowered(self, how: Lowered) -> None:
        """It ran at a lower level than was asked for."""
        self._say(f"at {how}")
        if not self.candidate.ours:
            text = f"{self.candidate.check} ran at {how}"
            self._findings.append(finding("DP707", text, level=how.level, kind=how.failure.kind))

    def describe(self, fp16: bool, reference: Reference, release: str, unmeasured: str) -> None:
        """Add what the device proves, who computed the reference, that DirectML is of another release, and why the
        original's own noise was not measured."""
        if self.device is None:
            return
        from dmlprep.runtime import another_release

        other = reference.device if reference.device is not None and reference.device.provider != "cpu" else None
        by = f"reference by {other}" if other is not None else ""
        at = f"the original at {reference.lowered}" if reference.lowered is not None else ""
        as_mended = "the original as it was mended, which does not load as it is" if reference.mended else ""
        as_written = f"the original with {reference.written_out} written out" if reference.written_out else ""
        other_release = another_release(self.device, release) if self.candidate.device == "dml" else ""
        noise = f"the original's own noise was not measured: {unmeasured}" if unmeasured else ""
        self._say(proves(fp16, self.device), by, at, as_mended, as_written, other_release, noise)

    def judged(self, judge: Judge, feeds: int) -> Verdict:
        """What the outputs amount to."""
        judged = judge.judged(str(self.candidate.check), self._differs, self.candidate.code or "DP701")
        facts = {f.name: getattr(judged, f.name) for f in fields(judged)}
        made = self._verdict(judged.reason, feeds, judged.findings, judged.outputs)
        return msgspec.structs.replace(made, **{**facts, "findings": made.findings})

    def failed(self, found: Finding, feeds: int = 0) -> Verdict:
        """``failed`` for another reason than a number."""
        return self._verdict(found.message, feeds, [found], [])

    def _differs(self, metrics: OutputMetrics) -> Finding:
        one = difference(metrics, self.tolerance)
        if not self.candidate.code:
            return one
        text = f"{self.candidate.check}: {one.message}"
        severity: Any = None if self.candidate.decides else "warning"
        facts: dict[str, Any] = one.facts
        return finding(self.candidate.code, text, node=one.node, severity=severity, **facts)

    def _verdict(self, reason: str, feeds: int, findings: list[Finding], outputs: list[OutputMetrics]) -> Verdict:
        return Verdict(
            check=self.candidate.check,
            outcome="failed" if reason else "passed",
            reason=reason,
            device=self.device,
            tolerance=str(self.tolerance),
            tolerance_setting=self._setting,
            feeds=feeds,
            seconds=round(time.perf_counter() - self._began, 3),
            outputs=outputs,
            findings=[*findings, *self._findings],
            decides=self.candidate.decides,
        )


def not_run(
    check: Check,
    reason: str,
    info: DeviceInfo | None,
    began: float,
    tolerance: Tolerance | None = None,
    *,
    decides: bool = True,
    failure: SessionFailure | None = None,
) -> Verdict:
    """The verdict of a check that could not run.

    Args:
        began: when it was tried.
        failure: a limit that ended it; the finding has its kind, and how to raise the limit.
    """
    facts: dict[str, Any] = {}
    if failure is not None:
        facts = {"kind": failure.kind, "remedy": failure.next_step}
    return Verdict(
        check=check,
        outcome="not-run",
        reason=reason,
        device=info,
        tolerance=str(tolerance) if tolerance is not None else "",
        seconds=round(time.perf_counter() - began, 3),
        findings=[finding("DP703", f"{check} did not run: {reason}", **facts)],
        decides=decides,
        ended=failure.kind if failure is not None else "",
    )
