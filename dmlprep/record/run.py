"""The record of one run: steps, verdicts and findings. Reports are views of it; ``run.json`` is its JSON form."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from dmlprep.errors import InputError
from dmlprep.files import Unfit, meant, parse_json, read_text, unreadable
from dmlprep.record.documents import to_json
from dmlprep.record.facts import check_run_facts, step_facts
from dmlprep.record.findings import Finding, finding
from dmlprep.record.notebook import notebook_html
from dmlprep.record.output_metrics import OutputMetrics

__all__ = ["REAL_INPUTS", "DeviceInfo", "RunRecord", "StepRecord", "Verdict"]

FORMAT = 1
"""Version of the JSON form. Raised when a field changes its meaning or goes away."""


REAL_INPUTS = "give real ones with --feeds; dmlprep feeds makes them from pictures, sound or text"
"""What to do about inputs that were made."""


class DeviceInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which device answered.

    Attributes:
        name: ``cpu``, ``fp16 emulation``, ``dml on linux: lavapipe`` or ``dml on windows: ADAPTER``.
        details: versions and traits, in the order they are printed (``DirectML 1.15.4``, ``no native FP16``).
    """

    name: str
    details: list[str] = []

    def __str__(self) -> str:
        return ", ".join([self.name, *self.details])


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one check. Not run is never passed.

    Attributes:
        check: what was checked (``parity on cpu``), for people.
        provider: where the model runs for it: ``cpu``, ``dml``, or the FP16 ``emulation``; empty where nothing runs.
        kit: whether a kit ran it, on another machine.
        outcome: ``passed``, ``failed``, ``not-proven`` (it ran, on inputs that prove nothing) or ``not-run``.
        reason: why it did not pass; empty when it passed.
        device: which device answered, ``None`` when none did.
        tolerance: name of the tolerance and its numbers.
        decides: whether it decides about the model; one that does not is information, whatever its outcome.
        predicted: of a DirectML session on an FP16 model, the worst relative error that is foretold: that of the FP16
            emulation with the device's rounding on the same feeds, the original's own noise, or what last bits make of
            a quantised original, whichever is largest; ``None`` where there is none.
        predicted_by: what foretold ``predicted``.
        inputs: ``given`` by the user, ``seeded`` (made, which proves less); empty where the check needs none.
        metric: the user's own measure, which decided in place of the tolerance; empty where there is none.
        values: what it gave, feed by feed.
        measured: when it was measured (``2026-11-22T14:03:12Z``, UTC), where it is of an earlier run on equal files and
            an equal device, and was kept; empty where it ran now.
    """

    check: str
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
    provider: Literal["", "cpu", "dml", "emulation"] = ""
    kit: bool = False

    def __post_init__(self) -> None:
        if self.outcome != "passed" and not self.reason:
            raise ValueError("a verdict that did not pass says why")

    def on(self, inputs: Literal["", "given", "seeded"], *, remind: bool = True) -> Verdict:
        """The same, with where its inputs came from; ``remind``: with a finding that made ones prove less (DP710)."""
        verdict = msgspec.structs.replace(self, inputs=inputs)
        if not (verdict.on_made_inputs and remind):
            return verdict
        text = f"the inputs were made from a seed, and prove less than real ones: {REAL_INPUTS}"
        return msgspec.structs.replace(verdict, findings=[*self.findings, finding("DP710", text, remedy="")])

    @property
    def prediction(self) -> str:
        """What was predicted, and what it comes from; empty where nothing was."""
        if self.predicted is None:
            return ""
        return f"{self.predicted_by or 'the fp16 emulation'} predicted {self.predicted:.2g}"

    @property
    def on_made_inputs(self) -> bool:
        """Whether outputs were compared on inputs that were made."""
        return self.inputs == "seeded" and bool(self.outputs)

    @property
    def exit_code(self) -> int:
        """What the command line returns where this verdict decides: 0 passed, 1 failed, 3 not run or not proven."""
        return {"passed": 0, "failed": 1, "not-proven": 3, "not-run": 3}[self.outcome]


class StepRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one step did.

    Attributes:
        outcome: ``changed``, ``unchanged`` or ``undone`` (the guard took it back).
        seconds: wall time.
        nodes_before: nodes of all graphs, subgraphs and functions.
        bytes_before: bytes of all tensors held by the model.
    """

    step: str
    outcome: Literal["changed", "unchanged", "undone"]
    seconds: float
    nodes_before: int
    nodes_after: int
    bytes_before: int
    bytes_after: int
    options: dict[str, Any] = {}
    findings: list[Finding] = []
    facts: dict[str, Any] = {}


class RunRecord(msgspec.Struct):
    """One run of ``prepare``, ``check`` or ``compare``.

    Attributes:
        exit_code: what the command line returns for it.
        input_sha256: digest of the model file. ``facts["digests"]`` has those of all files that were read, by path.
        output: path of the prepared model, empty when nothing was written.
        opset_before: opset by domain.
    """

    command: str
    input: str
    format: int = FORMAT
    version: str = ""
    target: str = ""
    recipe: str = ""
    input_sha256: str = ""
    output: str = ""
    output_sha256: str = ""
    exit_code: int = 0
    seconds: float = 0.0
    opset_before: dict[str, int] = {}
    opset_after: dict[str, int] = {}
    ir_before: int = 0
    ir_after: int = 0
    steps: list[StepRecord] = []
    verdicts: list[Verdict] = []
    findings: list[Finding] = []
    facts: dict[str, Any] = {}
    error: str = ""

    def all_findings(self) -> list[Finding]:
        """Findings of the run, its steps and its verdicts, in the order they were made."""
        found = list(self.findings)
        for step in self.steps:
            found += step.findings
        for verdict in self.verdicts:
            found += verdict.findings
        return found

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        return notebook_html(self, self.input)

    def to_json(self) -> bytes:
        """The record as indented JSON, UTF-8."""
        return to_json(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> RunRecord:
        """Read a record back.

        Raises:
            msgspec.ValidationError: the bytes are not a run record, or that of a newer dmlprep.
        """
        try:
            record = parse_json(data, cls)
        except Unfit as error:
            raise msgspec.ValidationError(str(error)) from error
        if record.format > FORMAT:
            raise msgspec.ValidationError(f"format {record.format} is of a newer dmlprep; this one reads {FORMAT}")
        check_run_facts(record.facts)
        for step in record.steps:
            step_facts(step.facts)
        return record

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        """Read a record from a file, or from the ``run.json`` of a folder.

        Raises:
            InputError: it cannot be read, or is no record.
        """
        path = path / "run.json" if path.is_dir() else path
        try:
            return cls.from_json(read_text(path))
        except OSError as error:
            raise unreadable(error, path, fix=meant(path, "check the path")) from error
        except Unfit as error:
            raise InputError(f"not a run record: {error}", where=str(path), fix=error.fix) from error
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            fix = "pass the run.json that prepare wrote"
            raise InputError(f"not a run record: {error}", where=str(path), fix=fix) from error
