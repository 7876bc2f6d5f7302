"""The proof: compare the prepared model on the CPU, in the FP16 emulation and on DirectML with the original on the CPU.

The CPU provider computes FP16 nodes in FP32. So the FP16 emulation, a derived model that rounds as FP16 hardware does,
proves the FP16 arithmetic (``precision.emulation``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dmlprep.core.errors import CheckNotRun, DmlprepError, InternalError, ModelRefused
from dmlprep.graph.model import Model
from dmlprep.graph.model.input_watch import Unchanged
from dmlprep.metrics import holds_fp16
from dmlprep.parity import (
    Candidate,
    Reference,
    RunFeeds,
    compare,
    emulation_candidate,
    file_candidate,
    load_feeds,
    not_run,
)
from dmlprep.parity.candidate import usable_device
from dmlprep.parity.judging import JudgingOptions
from dmlprep.parity.loading import LOADS, loads
from dmlprep.passes.fusions import write_out
from dmlprep.pipeline.observer import Observer
from dmlprep.pipeline.predicted import apply_prediction, device_rounding
from dmlprep.pipeline.proof_key import proof_key
from dmlprep.pipeline.recipe import ParitySettings
from dmlprep.pipeline.verdict_cache import KeptVerdicts
from dmlprep.portable.arrays import Array
from dmlprep.record import Check, DeviceInfo, Verdict
from dmlprep.record.aliases import SessionDevice
from dmlprep.runtime import SessionHost, SessionOptions

if TYPE_CHECKING:
    from dmlprep.passes.precision import Accumulation, Rounding

Arrays = Mapping[str, "Array"]


_MODES: dict[str, tuple[Accumulation, ...]] = {
    "storage": ("storage",),
    "everywhere": ("everywhere",),
    "both": ("storage", "everywhere"),
    "off": (),
}
"""The FP16 emulations that run, by the setting ``parity.fp16_emulation``; the first one decides.

DirectML's own shaders sum in FP32. So with ``both``, the verdict of ``everywhere`` is information only: it shows the
result on hardware that sums in FP16.
"""

_SUMS = {"storage": "FP16 storage, FP32 sums", "everywhere": "FP16 everywhere, partial sums too"}
_OF_THE_FILE, _RAN = ("cpu", "dml"), ("passed", "not-proven")
_ROUNDING = {"nearest": "rounding to nearest even", "toward-zero": "rounding toward zero"}


@dataclass(frozen=True)
class _Check:
    """A check of the proof that is going to run.

    Attributes:
        run: compares the prepared model with the original; returns the verdict.
        predicted_by: the check before it that predicts its errors; ``None``: no check does.
    """

    check: Check
    run: Callable[[Reference], Verdict]
    predicted_by: Check | None = None


def missing_device(session: SessionOptions | None) -> str:
    """Return the reason why DirectML is not available on the device of ``session``; empty if it is available."""
    return usable_device("dml", session)[0]


@dataclass(frozen=True)
class Proof:
    """The proof of one prepared model: the checks that compare it with its original. Each check gives one verdict.

    Attributes:
        model: the prepared model, opened from its file.
        settings: the table ``[parity]`` of the recipe.
        session: options of sessions on DirectML.
        host: the child process for all runs on the CPU; ``None``: each run starts its own.
        judging_options: how outputs are judged, with the user's metric.
        cache: cache of DirectML verdicts; a cached verdict is not measured again.
    """

    model: Model
    settings: ParitySettings
    session: SessionOptions
    observer: Observer = field(default_factory=Observer)
    host: SessionHost | None = None
    judging_options: JudgingOptions = field(default_factory=JudgingOptions)
    cache: KeptVerdicts = field(default_factory=lambda: KeptVerdicts(None))

    def verdicts(self, feeds: RunFeeds, rounding: Rounding | None) -> list[Verdict]:
        """Run each check in the settings, and return its verdict; the original runs once for all of them.

        If no check ran the file itself, failed or reached a limit, one more check tests whether ONNX Runtime loads it.

        Args:
            feeds: the feeds of the run, with the original model.
            rounding: how the FP16 emulation rounds; ``None`` if no step added FP16 arithmetic: then it does not run.

        Raises:
            InputError: a user's feed does not fit the model, ``settings.measures`` names an unknown output, or the
                metric fails.
            UsageError: there is no such tolerance, or seeded feeds are too large.
            InternalError: the FP16 emulation cannot be made.
        """
        checks = self._checks(rounding)
        verdicts = self._compared(checks, feeds) if checks else []
        # A model that exceeded a limit would exceed it again.
        if any(v.ended == "limit" for v in verdicts):
            return verdicts
        # A file that ran was loaded; the emulation runs a derived model instead of the file.
        if not any(v.outcome == "failed" or (v.outcome in _RAN and v.check.provider in _OF_THE_FILE) for v in verdicts):
            self.observer.check_started(str(LOADS))
            verdicts.append(loads(feeds.original, self.model, self.settings.time_limit, self.host))
            self.observer.check_finished(verdicts[-1])
        return verdicts

    def _compared(self, checks: Sequence[_Check], feeds: RunFeeds) -> list[Verdict]:
        began, seeds, limit = time.perf_counter(), self.settings.seeds, self.settings.time_limit
        try:
            reference = Reference(feeds, self.model, seeds, limit, self.host, self.judging_options)
        except CheckNotRun as error:
            return [not_run(one.check, str(error), None, began) for one in checks]
        verdicts: list[Verdict] = []
        with reference:
            for one in checks:
                self.observer.check_started(str(one.check))
                verdict = reference.stamp(one.run(reference), remind=not any(v.on_made_inputs for v in verdicts))
                if one.predicted_by is not None:
                    predicted = next((v for v in verdicts if v.check == one.predicted_by), None)
                    last_bits = reference.last_bits() if verdict.outputs else 0.0
                    verdict = apply_prediction(verdict, predicted, device_rounding(self.session), last_bits)
                verdicts.append(verdict)
                self.observer.check_finished(verdict)
        return verdicts

    def _checks(self, rounding: Rounding | None) -> list[_Check]:
        settings = self.settings
        checks: list[_Check] = []
        predicted_by = None
        if settings.cpu:
            checks.append(_Check(Check("parity", "cpu"), partial(self.on, "cpu")))
        if settings.cpu and rounding is not None and holds_fp16(self.model):
            modes = _MODES[settings.fp16_emulation]
            for mode in modes:
                emulated = partial(self.emulated, _emulation(mode), mode, rounding, decides=mode == modes[0])
                checks.append(_Check(_emulation(mode), emulated))
            if settings.dml != "off":
                cut = device_rounding(self.session)
                if cut == rounding and "storage" in modes:
                    predicted_by = _emulation("storage")
                elif cut == "toward-zero" or "storage" in modes:
                    predicted_by = _emulation("storage", cut)
                    checks.append(_Check(predicted_by, partial(self.emulated, predicted_by, "storage", cut)))
        if settings.dml != "off":
            checks.append(_Check(Check("parity", "dml"), partial(self.on, "dml"), predicted_by))
        return checks

    def on(self, device: SessionDevice, reference: Reference) -> Verdict:
        """Run the prepared file on a device, compare its outputs with the original's, and return the verdict.

        A verdict on DirectML comes from the cache, if the files, feeds, tolerance, device and versions are those of an
        earlier run (``proof_key``).
        """
        candidate = file_candidate(self.model, device, host=self.host)
        measure = partial(self._held_against, reference, candidate, self.session)
        if device == "cpu" or not self.cache.active:
            return measure()
        return self.cache.verdict(proof_key(reference, self.model, self.settings, self.session), measure)

    def emulated(
        self, check: Check, mode: Accumulation, rounding: Rounding, reference: Reference, *, decides: bool = False
    ) -> Verdict:
        """Run the prepared model as FP16 hardware would compute it, on the CPU, and return the verdict.

        Args:
            check: name of the check in the verdict.
            mode: where the emulation rounds to FP16: ``storage`` or ``everywhere``.
            rounding: how it rounds.
            reference: the original with its outputs.
            decides: True if the verdict decides about the model; otherwise it is information.

        Raises:
            InternalError: the emulation cannot be made.
        """
        from dmlprep.passes.precision import emulate

        began = time.perf_counter()
        # The nodes that replace a fused operator each store FP16.
        written = write_out(self.model, all_of_them=True)
        fused = [str(written)] if written.counts else []
        device = DeviceInfo("fp16 emulation", [_SUMS[mode], _ROUNDING[rounding], *fused], "emulation")
        try:
            shadow = emulate(written.model, mode, rounding)
        except ModelRefused as error:
            return not_run(check, str(error), device, began, decides=decides)
        except DmlprepError:
            raise
        except Exception as error:
            what = f"the FP16 emulation of the result cannot be made: {type(error).__name__}: {error}"
            fix = 'please report this; --set parity.fp16_emulation="off" leaves this proof out'
            raise InternalError(what, where=str(check), fix=fix) from error
        where = str(self.model.path)
        candidate = emulation_candidate(shadow, check, where, device, code="DP407", decides=decides, host=self.host)
        return self._held_against(reference, candidate)

    def _held_against(
        self, reference: Reference, candidate: Candidate, session: SessionOptions | None = None
    ) -> Verdict:
        settings, progress = self.settings, self.observer.step_progress
        return compare(reference, candidate, settings.tolerance, settings.time_limit, session, progress)


def _emulation(mode: Accumulation, rounding: Rounding | Literal[""] = "") -> Check:
    return Check("parity", "emulation", mode, rounding)


def compare_models(
    reference: Path,
    candidate: Path,
    settings: ParitySettings,
    *,
    feeds: Sequence[str | Path | Arrays],
    device: SessionDevice,
    session: SessionOptions,
    judging_options: JudgingOptions,
) -> Verdict:
    """Compare the outputs of two model files, for ``dmlprep compare``; return the verdict.

    If an FP16 candidate fails on a DirectML device that rounds toward zero, the FP16 emulation decides
    (``apply_prediction``).

    Args:
        reference: the original, which runs on the CPU.
        candidate: the model to judge, which runs on ``device``.
        settings: tolerance, sizes, number of seeded feeds, and time limit.
        feeds: the user's feeds; empty: seeded ones.
        session: options of the candidate's session.

    Raises:
        InputError: a model or a feed cannot be read, a feed does not fit, the user's metric fails, or a model was
            changed meanwhile.
        UsageError: there is no such tolerance, or seeded feeds are too large.
        ModelRefused: a model has content that dmlprep cannot preserve, or would grow beyond its limits.
        ToolFailed: onnx crashes on a model, or needs more than its limits.
    """
    user_feeds = load_feeds(feeds)
    files = Unchanged(contents=False)
    proof = Proof(files.take_model(candidate), settings, session, judging_options=judging_options)
    began, limit = time.perf_counter(), settings.time_limit
    original, sizes, seeds = files.take_model(reference), settings.sizes, settings.seeds
    try:
        truth = Reference.of(original, user_feeds, proof.model, sizes, seeds, limit, judging_options)
    except CheckNotRun as error:
        return not_run(Check("parity", device), str(error), None, began)
    with truth:
        verdict = truth.stamp(proof.on(device, truth))
        files.check()
        cut = device_rounding(session) if device == "dml" and verdict.outcome == "failed" else "nearest"
        if cut == "nearest" or not holds_fp16(proof.model):
            return verdict
        predicted = proof.emulated(_emulation("storage", cut), "storage", cut, truth)
        files.check()
    return apply_prediction(verdict, predicted, cut)
