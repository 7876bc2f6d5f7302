"""The proof: the original on the CPU against the prepared model on the CPU, in the FP16 emulation, and on DirectML.

Each check is one verdict; the original runs once for all of them. The CPU provider computes FP16 in FP32, which proves
nothing about FP16 arithmetic: that is what the FP16 emulation is for (``precision.emulation``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dmlprep.core.errors import CheckNotRun, DmlprepError, InternalError, ModelRefused
from dmlprep.graph.model import Model
from dmlprep.graph.model.input_watch import Unchanged
from dmlprep.metrics import UserMetric, holds_fp16
from dmlprep.parity import Reference, RunFeeds, compare, compare_candidate, emulation_candidate, load_feeds, not_run
from dmlprep.parity.candidate import usable_device
from dmlprep.parity.judging_options import JudgingOptions
from dmlprep.parity.loading import LOADS, loads
from dmlprep.passes.fusions import write_out
from dmlprep.pipeline.observer import Observer
from dmlprep.pipeline.predicted import apply_prediction, device_rounding
from dmlprep.pipeline.proof_key import proof_key
from dmlprep.pipeline.recipe import ParitySettings
from dmlprep.pipeline.verdict_cache import KeptVerdicts
from dmlprep.record import Check, DeviceInfo, Verdict
from dmlprep.record.aliases import SessionDevice

if TYPE_CHECKING:
    from dmlprep.passes.precision import Accumulation, Rounding
    from dmlprep.portable.arrays import Array
    from dmlprep.runtime import SessionHost, SessionOptions

Arrays = Mapping[str, "Array"]


_MODES: dict[str, tuple[Accumulation, ...]] = {
    "storage": ("storage",),
    "everywhere": ("everywhere",),
    "both": ("storage", "everywhere"),
    "off": (),
}
"""What the setting asks for. The first decides: DirectML's own shaders sum in FP32, so with both, ``everywhere`` tells
what hardware would make of the model that sums in FP16, and refuses nothing."""

_SUMS = {"storage": "FP16 storage, FP32 sums", "everywhere": "FP16 everywhere, partial sums too"}
_OF_THE_FILE, _RAN = ("cpu", "dml"), ("passed", "not-proven")
_ROUNDING = {"nearest": "rounding to nearest even", "toward-zero": "rounding toward zero"}


@dataclass(frozen=True)
class _Check:
    """A check to make.

    Attributes:
        predicted_by: the check before it that predicts its errors.
    """

    check: Check
    run: Callable[[Reference], Verdict]
    predicted_by: Check | None = None


def missing_device(session: SessionOptions | None) -> str:
    """Why DirectML cannot answer here, on the adapter of ``session``; empty where it can."""
    return usable_device("dml", session)[0]


def prove(
    original: Model,
    prepared: Model,
    settings: ParitySettings,
    feeds: RunFeeds,
    *,
    rounding: Rounding | None = None,
    session: SessionOptions | None = None,
    observer: Observer | None = None,
    host: SessionHost | None = None,
    metric: UserMetric | None = None,
    kept: KeptVerdicts | None = None,
) -> list[Verdict]:
    """One verdict for each check that the settings ask for; the original runs once.

    Where none of them says that ONNX Runtime loads the file, one more does.

    Args:
        original, prepared: as they were opened, from the files that are proved.
        feeds: the run's; the steps had the same.
        rounding: how the FP16 emulation rounds, where a step brought FP16 arithmetic in; ``None`` where none did.
        host: serves what runs on the CPU, one model after the other; without one each has a worker of its own.
        metric: the user's own, which decides in place of the tolerance.
        kept: verdicts of DirectML that are not measured again.

    Raises:
        InputError: a feed of the user's does not fit the model, it has no output that ``settings.measures`` names, or
            the metric fails.
    """
    observer = observer or Observer()
    checks = _checks(prepared, settings, rounding, session, observer, host, kept or KeptVerdicts(None))
    verdicts = _compared(checks, original, prepared, settings, feeds, session, observer, host, metric) if checks else []
    # What went beyond a limit would do so again.
    if any(v.ended == "limit" for v in verdicts):
        return verdicts
    # A file that ran was loaded; what an emulation says is of a model of our own making.
    if not any(v.outcome == "failed" or (v.outcome in _RAN and v.check.provider in _OF_THE_FILE) for v in verdicts):
        observer.check_started(str(LOADS))
        verdicts.append(loads(original, prepared, settings.time_limit, host))
        observer.check_finished(verdicts[-1])
    return verdicts


def _compared(
    checks: Sequence[_Check],
    original: Model,
    made: Model,
    settings: ParitySettings,
    feeds: RunFeeds,
    session: SessionOptions | None,
    observer: Observer,
    host: SessionHost | None,
    metric: UserMetric | None,
) -> list[Verdict]:
    began = time.perf_counter()
    judging_options = JudgingOptions(settings.measures, settings.noise, metric)
    try:
        reference = Reference.fed(original, feeds, made, settings.seeds, settings.time_limit, host, judging_options)
    except CheckNotRun as error:
        return [not_run(one.check, str(error), None, began) for one in checks]
    verdicts: list[Verdict] = []
    with reference:
        for one in checks:
            observer.check_started(str(one.check))
            verdict = reference.stamp(one.run(reference), remind=not any(v.on_made_inputs for v in verdicts))
            if one.predicted_by is not None:
                predicted = next((v for v in verdicts if v.check == one.predicted_by), None)
                last_bits = reference.last_bits() if verdict.outputs else 0.0
                verdict = apply_prediction(verdict, predicted, device_rounding(session), last_bits)
            verdicts.append(verdict)
            observer.check_finished(verdict)
    return verdicts


def _checks(
    made: Model,
    settings: ParitySettings,
    rounding: Rounding | None,
    session: SessionOptions | None,
    observer: Observer,
    host: SessionHost | None,
    kept: KeptVerdicts,
) -> list[_Check]:
    def on(device: SessionDevice, predicted_by: Check | None = None) -> _Check:
        def run(reference: Reference) -> Verdict:
            measure = partial(
                compare,
                reference,
                made,
                device=device,
                tolerance=settings.tolerance,
                time_limit=settings.time_limit,
                session=session,
                progress=observer.step_progress,
                host=host,
            )
            if device == "cpu" or not kept.active:
                return measure()
            return kept.verdict(proof_key(reference, made, settings, session), measure)

        return _Check(Check("parity", device), run, predicted_by)

    def half(check: Check, mode: Accumulation, rounding: Rounding, decides: bool) -> _Check:
        def run(truth: Reference) -> Verdict:
            return _emulated(truth, made, settings, mode, rounding, check, decides, observer, host)

        return _Check(check, run)

    checks: list[_Check] = []
    predicted_by = None
    if settings.cpu:
        checks.append(on("cpu"))
    if settings.cpu and rounding is not None and holds_fp16(made):
        modes = _MODES[settings.fp16_emulation]
        checks += [half(_emulation(mode), mode, rounding, index == 0) for index, mode in enumerate(modes)]
        if settings.dml != "off":
            cut = device_rounding(session)
            if cut == rounding and "storage" in modes:
                predicted_by = _emulation("storage")
            elif cut == "toward-zero" or "storage" in modes:
                predicted_by = _emulation("storage", cut)
                checks.append(half(predicted_by, "storage", cut, False))
    if settings.dml != "off":
        checks.append(on("dml", predicted_by))
    return checks


def _emulation(mode: Accumulation, rounding: Rounding | Literal[""] = "") -> Check:
    return Check("parity", "emulation", mode, rounding)


def _emulated(
    reference: Reference,
    made: Model,
    settings: ParitySettings,
    mode: Accumulation,
    rounding: Rounding,
    check: Check,
    decides: bool,
    observer: Observer,
    host: SessionHost | None,
) -> Verdict:
    """The prepared file as FP16 hardware would compute it, against the original's outputs."""
    from dmlprep.passes.precision import emulate

    began = time.perf_counter()
    # The nodes behind a fused operator store FP16, one after the other.
    written = write_out(made, all_of_them=True)
    fused = [f"{written} written out"] if written.counts else []
    device = DeviceInfo("fp16 emulation", [_SUMS[mode], _ROUNDING[rounding], *fused], "emulation")
    try:
        shadow = emulate(written.model, mode, rounding)
    except ModelRefused as error:
        return not_run(check, str(error), device, began, decides=decides)
    except DmlprepError:
        raise
    except Exception as error:
        raise InternalError(
            f"the FP16 emulation of the result cannot be made: {type(error).__name__}: {error}",
            where=str(check),
            fix='please report this; --set parity.fp16_emulation="off" leaves this proof out',
        ) from error
    candidate = emulation_candidate(shadow, check, str(made.path), device, code="DP407", decides=decides, host=host)
    return compare_candidate(
        reference, candidate, settings.tolerance, settings.time_limit, progress=observer.step_progress
    )


def compare_models(
    reference: Path,
    candidate: Path,
    *,
    feeds: Sequence[str | Path | Arrays],
    device: SessionDevice,
    session: SessionOptions,
    tolerance: str,
    sizes: Mapping[str, int],
    seeds: int,
    judging_options: JudgingOptions = JudgingOptions(),  # noqa: B008 - frozen
) -> Verdict:
    """``dmlprep compare``: two models of the user's.

    Raises:
        InputError: a model or a feed cannot be read, a feed does not fit, or a model was changed meanwhile.
    """
    given, limit = load_feeds(feeds) or None, session.time_limit
    files = Unchanged(contents=False)
    made = files.take_model(candidate)
    began = time.perf_counter()
    original = files.take_model(reference)
    try:
        truth = Reference.of(
            reference,
            given,
            opened=original,
            like=made,
            sizes=sizes,
            seeds=seeds,
            time_limit=limit,
            judging_options=judging_options,
        )
    except CheckNotRun as error:
        return not_run(Check("parity", device), str(error), None, began)
    with truth:
        verdict = truth.stamp(
            compare(truth, made, device=device, tolerance=tolerance, time_limit=limit, session=session)
        )
        files.check()
        cut = device_rounding(session) if device == "dml" and verdict.outcome == "failed" else "nearest"
        if cut == "nearest" or not holds_fp16(made):
            return verdict
        settings = ParitySettings(tolerance=tolerance, time_limit=limit)
        check = _emulation("storage", cut)
        predicted = _emulated(truth, made, settings, "storage", cut, check, False, Observer(), None)
        files.check()
    return apply_prediction(verdict, predicted, cut)
