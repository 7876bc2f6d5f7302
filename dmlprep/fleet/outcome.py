"""The row of each job in a fleet's table, and its findings, from the job's record."""

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
"""Exit codes of runs that came to no outcome: their records hold an error and nothing else."""

_OF_THE_MODEL = {"DP001", "DP016", "DP017"}
"""Codes of files that are not models: the same bytes fail again."""

_OF_THE_MACHINE = {"DP013"}
"""Codes of refusals that another machine, or this one with less to do, need not repeat: a limit was exceeded."""


@dataclass(frozen=True)
class Done:
    """A job that has ended, with its row of the fleet's record.

    Attributes:
        findings: the run's record with its findings alone, for SARIF and annotations.
        data: SHA-256 of the data files that the run read.
        lasting: whether the outcome follows from the job's key.
    """

    row: JobRecord
    findings: RunRecord
    data: dict[Path, str]
    lasting: bool = True


def read_record(path: Path) -> RunRecord | None:
    """Return a run's record; ``None`` if it cannot be read."""
    try:
        return RunRecord.read(path)
    except InputError:
        return None


def done(job: Job, ended: Ended, record: RunRecord | None, key: str, *, is_known: bool = False) -> Done:
    """Return the row of a job that ended now or before; ``record`` is ``None`` if the run left none."""
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
    """Return the row of a job without a record: its input cannot be used, or it was ended. It is never good."""
    error = ended.error or f"the job ended with exit code {ended.exit_code} without a record"
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
