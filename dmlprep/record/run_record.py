"""The record of one run: steps, verdicts and findings. Reports are views of it; ``run.json`` is its JSON form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dmlprep.core.errors import DmlprepError, InputError
from dmlprep.core.files import Unfit, meant, parse_json, read_text, unreadable
from dmlprep.core.text.documents import to_json
from dmlprep.record.facts import RunFacts
from dmlprep.record.findings import Finding
from dmlprep.record.headline import notebook_html
from dmlprep.record.steps import StepRecord
from dmlprep.record.verdicts import Verdict

FORMAT = 1
"""Version of the JSON form. Raised when a field changes its meaning or goes away."""


class RunError(msgspec.Struct, frozen=True, omit_defaults=True):
    """The error of a run: a sentence, the place, the fix, and a finding code; its text is all of them."""

    what: str
    where: str = ""
    fix: str = ""
    code: str = ""

    @classmethod
    def of(cls, error: DmlprepError) -> RunError:
        """Return the error that was raised."""
        return cls(error.what, error.where, error.fix, error.code)

    def __str__(self) -> str:
        return str(DmlprepError(self.what, where=self.where, fix=self.fix, code=self.code))


class RunRecord(msgspec.Struct):
    """One run of ``prepare``, ``check`` or ``compare``.

    Attributes:
        exit_code: what the command line returns for it.
        input_sha256: digest of the model file. ``facts.digests`` has those of all files that were read, by path.
        output: path of the prepared model, empty when nothing was written.
        opset_before: opset by domain.
        options: what the user chose of ``prepare``, by the names of ``PrepareOptions``.
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
    facts: RunFacts = msgspec.field(default_factory=RunFacts)
    options: dict[str, Any] = {}
    error: RunError | None = None

    def all_findings(self) -> list[Finding]:
        """Return the findings of the run, its steps and its verdicts, in that order."""
        sources: list[RunRecord | StepRecord | Verdict] = [self, *self.steps, *self.verdicts]
        return [finding for source in sources for finding in source.findings]

    def _repr_html_(self) -> str:
        """Return HTML for notebooks."""
        return notebook_html(self)

    def to_json(self) -> bytes:
        """The record as indented JSON, UTF-8."""
        return to_json(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> RunRecord:
        """Read a record; ``msgspec.ValidationError`` if it is not one, or of a newer dmlprep."""
        try:
            record = parse_json(data, cls)
        except Unfit as error:
            raise msgspec.ValidationError(str(error)) from error
        if record.format > FORMAT:
            raise msgspec.ValidationError(f"format {record.format} is of a newer dmlprep; this one reads {FORMAT}")
        return record

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        """Read a record from a file, or from the ``run.json`` of a folder; ``InputError`` if it is not one."""
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
