"""Make the row of a job in the fleet's table, and its findings, from the job's run record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from dmlprep.core._version import __version__
from dmlprep.core.errors import InputError, InternalError, UsageError
from dmlprep.fleet.engine import Ended
from dmlprep.fleet.matrix import Job
from dmlprep.fleet.places import MODEL, RECORD, REPORT
from dmlprep.record import CODES, Finding, RunRecord
from dmlprep.record.fleet import JobRecord
from dmlprep.record.run_record import RunFacts, headline

_NO_RECORD = "DP906"
_RAISED = {UsageError.exit_code, InternalError.exit_code}
"""Exit codes of runs that failed before any result: their records contain only an error."""

_OF_THE_MODEL = {"DP001", "DP016", "DP017"}
"""Finding codes of files that are not usable models: a run with the same file fails again."""

_OF_THE_MACHINE = {"DP013"}
"""Finding codes of failures that may not occur again, on another machine or with less load: a limit was exceeded."""


@dataclass(frozen=True)
class Done:
    """A job that has ended, with its row of the fleet's record.

    Attributes:
        findings: the run's record with all its findings, but without steps, verdicts, facts and options; for SARIF and
            annotations.
        data: path -> SHA-256 of the data files that the run read.
        lasting: False if a run with the same key might end another way, although its exit code is 0, 1 or 2.
    """

    row: JobRecord
    findings: RunRecord
    data: dict[Path, str]
    lasting: bool = True


def read_record(path: Path) -> RunRecord | None:
    """Return a run's record from its file; ``None`` if it cannot be read."""
    try:
        return RunRecord.read(path)
    except InputError:
        return None


def done(job: Job, ended: Ended, record: RunRecord | None, key: str, *, is_known: bool = False) -> Done:
    """Return the row and findings of a job that ended.

    Args:
        record: the record of the run; ``None`` if it left none. It is not used if it has another exit code than
            ``ended``, or only an error; then the result is that of ``without_record``.
        is_known: True for a job that ended in an earlier run of the fleet.
    """
    if record is None or record.exit_code != ended.exit_code:
        return without_record(job, ended, key, is_known=is_known)
    if record.exit_code in _RAISED and record.error is not None:
        return without_record(
            job, replace(ended, error=str(record.error), code=record.error.code), key, is_known=is_known
        )
    news = headline(record)
    placed = record.facts.placement_after
    compared = [v for v in record.verdicts if v.decides and v.outputs]
    errors = [output.max_rel for verdict in compared for output in verdict.outputs]
    row = _row(
        job,
        ended,
        key,
        reused=is_known,
        record=f"{job.name}/{RECORD}",
        report=f"{job.name}/{REPORT}",
        output=f"{job.name}/{MODEL}" if ended.exit_code == 0 else "",
        level=news.level,
        summary=news.text,
        error=str(record.error or ""),
        nodes=placed.nodes if placed is not None else None,
        dml_nodes=placed.dml_nodes if placed is not None else None,
        worst_error=max(errors) if errors else None,
        devices=list(dict.fromkeys(v.device.name for v in compared if v.device is not None)),
        bytes_before=record.steps[0].bytes_before if record.steps else None,
        bytes_after=record.steps[-1].bytes_after if record.steps else None,
    )
    findings = msgspec.structs.replace(
        record, steps=[], verdicts=[], facts=RunFacts(), options={}, findings=record.all_findings()
    )
    recipe = "" if job.recipe.startswith("@") else job.recipe
    data = {Path(path): sha for path, sha in record.facts.digests.items() if path not in (str(job.model), recipe)}
    codes = {one.code for one in record.findings}
    return Done(row, findings, data, not (ended.exit_code and codes & _OF_THE_MACHINE))


def without_record(job: Job, ended: Ended, key: str, *, is_known: bool = False) -> Done:
    """Return the row and one finding of a job without a usable record: its input cannot be used, or it was killed.

    Such a job always counts as failed. ``is_known``: the row says that an earlier run had this result (``reused``).
    """
    error = ended.error or f"the job ended with exit code {ended.exit_code} and wrote no record"
    if ended.exit_code == 0:
        ended = replace(ended, exit_code=InternalError.exit_code)
    row = _row(job, ended, key, reused=is_known, level="bad", error=error, summary=error)
    code = ended.code if ended.code in CODES else _NO_RECORD
    problem = Finding(code=code, severity="error", message=error)
    record = RunRecord(
        "prepare", str(job.model), version=__version__, target=job.target, recipe=job.written, findings=[problem]
    )
    record.exit_code = ended.exit_code
    return Done(row, record, {}, lasting=code in _OF_THE_MODEL)


def _row(job: Job, ended: Ended, key: str, **more: Any) -> JobRecord:
    return JobRecord(
        name=job.name,
        model=job.shown,
        recipe=job.written,
        target=job.target,
        size=job.size,
        pins=job.pins,
        exit_code=ended.exit_code,
        seconds=ended.seconds,
        key=key,
        **more,
    )
