"""Show findings as annotations of a GitHub Actions run.

GitHub shows at most ten annotations of each kind for a step. So findings of one code become one annotation.

Source of the form: GitHub Docs, "Workflow commands for GitHub Actions"; the escapes are those of ``@actions/core``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dmlprep.portable.printable import inert, printable
from dmlprep.record import RunRecord
from dmlprep.record.fleet import FleetRecord
from dmlprep.record.run_record import headline
from dmlprep.report.grouping import grouped

_COMMAND = {"note": "notice", "warning": "warning", "error": "error"}


def annotation_lines(record: RunRecord) -> Iterator[str]:
    """Yield the annotations of a run, one on each line, as workflow commands.

    Each group of findings of the same code, severity and fix has one, and so has each deciding check that did not pass.
    The last one is the result if the exit code is 0, or the error that ended the run. If the exit code is not 0 and the
    record has no error, there is neither.
    """
    for group in grouped(record.all_findings()):
        lines = [group.head, *group.items]
        lines += [f"and {group.left_out} more"] if group.left_out else []
        lines += [f"fix: {group.remedy}"] if group.remedy else []
        yield _line(_COMMAND[group.severity], record.input, group.code, "\n".join(filter(None, lines)))
    for verdict in record.verdicts:
        if verdict.decides and verdict.outcome != "passed":
            yield _line("error", record.input, f"{verdict.check}: {verdict.outcome}", verdict.reason)
    if record.error:
        yield _line("error", record.input, f"{record.command} failed", str(record.error))
    elif not record.exit_code:
        yield _line("notice", record.input, record.command, headline(record).text)


def job_lines(record: FleetRecord, inputs: Sequence[str]) -> Iterator[str]:
    """Yield an annotation for each job of a fleet with an exit code other than 0.

    ``inputs``: the path of each job's model, relative to the working folder.
    """
    for job, path in zip(record.jobs, inputs, strict=True):
        if job.exit_code:
            yield _line("error", path, f"{job.name}: {job.outcome}", job.error)


def error_line(title: str, text: str) -> str:
    """Return an annotation for an error that does not belong to a file."""
    return f"::error title={_property(f'dmlprep {title}')}::{_data(text)}"


def _line(command: str, file: str, title: str, text: str) -> str:
    return f"::{command} file={_property(file)},title={_property(f'dmlprep {title}')}::{_data(text)}"


def _data(text: str) -> str:
    shown = inert("\n".join(map(printable, text.split("\n"))))
    return shown.replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(printable(text)).replace(":", "%3A").replace(",", "%2C")
