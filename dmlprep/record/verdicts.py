"""Verdicts: the outcome of one check, and which device answered."""

from __future__ import annotations

from typing import Literal

import msgspec

from dmlprep.portable.output_metrics import OutputMetrics
from dmlprep.record.check import Check, FailureKind, Provider
from dmlprep.record.findings import Finding, finding

REAL_INPUTS = "pass real inputs with --feeds; dmlprep feeds makes them from pictures, audio or text"
"""The remedy to show if the inputs were synthetic."""

EXIT_CODES = {"passed": 0, "failed": 1, "not-proven": 3, "not-run": 3}
"""The exit code of the command line for each outcome of a verdict that decides."""


class DeviceInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The device that answered; unknown fields are empty.

    Attributes:
        name: for people, such as ``cpu``, ``fp16 emulation``, ``dml on linux: lavapipe``, ``dml on windows: ADAPTER``.
        details: for people: versions and traits (``DirectML 1.15.4``, ``no native FP16``).
        software: whether it is an adapter that computes on the CPU.
        onnxruntime, driver: versions of ONNX Runtime and of the adapter's driver.
    """

    name: str
    details: list[str] = []
    provider: Literal[Provider, "evaluator", ""] = ""
    software: bool = False
    onnxruntime: str = ""
    driver: str = ""

    def also(self, *details: str) -> DeviceInfo:
        """Return a copy of the device with more details; empty ones are left out."""
        return msgspec.structs.replace(self, details=[*self.details, *filter(None, details)])

    def __str__(self) -> str:
        return ", ".join([self.name, *self.details])


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one check. A check that did not run never counts as passed.

    Attributes:
        outcome: ``not-proven``: it ran, on inputs that prove nothing.
        reason: why it did not pass; empty if it passed.
        tolerance: for people: the name of the tolerance and its numbers.
        tolerance_setting: the tolerance as it was set (``auto``, ``fp16-dml,rel=0.01``); empty if nothing ran.
        feeds: number of sets of inputs that ran.
        decides: whether it decides about the model; otherwise it is information.
        predicted: predicted worst relative error of a DirectML session on an FP16 model; ``None`` if there is no
            prediction. It is the largest of the original's own noise, the effect of last bits on a quantised original,
            and the error in the FP16 emulation. The emulation has the device's rounding and the same feeds.
        predicted_by: the source of the largest of the three.
        inputs: ``given`` by the user, or ``seeded`` (random), which proves less; empty if the check needs none.
        metric, values: the user's own measure, which decided instead of the tolerance, and its results, feed by feed.
        measured: time of an earlier measurement (``2026-11-22T14:03:12Z``, UTC) on equal files and an equal device,
            whose result this is; empty if it was measured now.
        ended: how a session of the check failed before it had a result; otherwise empty.
    """

    check: Check
    outcome: Literal["passed", "failed", "not-proven", "not-run"]
    reason: str = ""
    device: DeviceInfo | None = None
    tolerance: str = ""
    feeds: int = 0
    seconds: float = 0.0
    outputs: list[OutputMetrics] = []
    findings: list[Finding] = []
    decides: bool = True
    predicted: float | None = None
    predicted_by: str = ""
    inputs: Literal["", "given", "seeded"] = ""
    metric: str = ""
    values: list[float] = []
    measured: str = ""
    ended: Literal[FailureKind, ""] = ""
    tolerance_setting: str = ""

    def __post_init__(self) -> None:
        if self.outcome != "passed" and not self.reason:
            raise ValueError("a verdict that did not pass needs a reason")

    def on(self, inputs: Literal["", "given", "seeded"], *, remind: bool = True) -> Verdict:
        """Return a copy of the verdict with the origin of its inputs.

        With ``remind``, outputs that were compared on seeded inputs add the note DP710, that they prove less.
        """
        verdict = msgspec.structs.replace(self, inputs=inputs)
        if not (verdict.on_made_inputs and remind):
            return verdict
        text = f"the inputs are synthetic, and prove less than real inputs: {REAL_INPUTS}"
        return msgspec.structs.replace(verdict, findings=[*self.findings, finding("DP710", text, remedy="")])

    @property
    def prediction(self) -> str:
        """The predicted error and its source, for people; empty without a prediction."""
        if self.predicted is None:
            return ""
        return f"{self.predicted_by or 'the fp16 emulation'} predicted {self.predicted:.2g}"

    @property
    def on_made_inputs(self) -> bool:
        """True if outputs were compared on synthetic (seeded) inputs."""
        return self.inputs == "seeded" and bool(self.outputs)

    @property
    def exit_code(self) -> int:
        """The exit code of the command line, if this verdict decides."""
        return EXIT_CODES[self.outcome]
