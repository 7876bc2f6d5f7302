"""A fleet's record as Markdown, for the summaries of CI systems: the table of the jobs, and why some are not good.

GitHub takes 1 MiB of summary a step (GitHub Docs, "Workflow commands for GitHub Actions"): rows and texts are bounded.
"""

from __future__ import annotations

import re

from dmlprep.record.fleet import FleetRecord, JobRecord
from dmlprep.record.printable import printable, shortened
from dmlprep.record.sizes import bytes_text
from dmlprep.report.fleet import counted, word_of, worst_first

__all__ = ["render_markdown"]

_ROWS = 200
_NAME, _REASON = 200, 600
"""Characters of a name and of a reason; escaped they are at most twice as many."""

_SIGNS = re.compile(r"[\\`*_\[\]<>#|~&@$]|:(?=//)|(?<=www)\.")
"""What begins a form of Markdown, a link or a mention. All of it may be escaped (CommonMark 0.31, section 2.4)."""

_HEAD = ("job", "verdict", "on DirectML", "worst error", "weights", "seconds")


def render_markdown(record: FleetRecord) -> str:
    """The record as GitHub Flavored Markdown; names of files stand there as they are, not as forms of Markdown."""
    part = f", part {record.shard}" if record.shard else ""
    lines = [f"### {_text(counted(record), _REASON)}{part}", ""]
    jobs = worst_first(record.jobs) if len(record.jobs) > _ROWS else record.jobs
    if jobs:
        lines += [f"| {' | '.join(_HEAD)} |", "|---|---|--:|--:|--:|--:|"]
        lines += [f"| {' | '.join(_cells(job))} |" for job in jobs[:_ROWS]]
        lines += ["", *_more(len(jobs))]
    wrong = [job for job in worst_first(record.jobs) if job.exit_code]
    if wrong:
        lines += [f"- **{_text(job.name, _NAME)}**: {_text(job.error, _REASON)}" for job in wrong[:_ROWS]]
        lines += ["", *_more(len(wrong))]
    return "\n".join(lines).rstrip("\n") + "\n"


def _cells(job: JobRecord) -> list[str]:
    placed = "" if job.nodes is None else f"{job.dml_nodes or 0} of {job.nodes}"
    error = "" if job.worst_error is None else f"{job.worst_error:.2g}"
    size = "" if job.bytes_after is None else bytes_text(job.bytes_after)
    taken = "kept" if job.kept else f"{job.seconds:.1f}"
    word = word_of(job)
    return [_text(job.name, _NAME), word if word == "good" else f"**{word}**", placed, error, size, taken]


def _more(count: int) -> list[str]:
    return [f"{count - _ROWS} more are in fleet.json", ""] if count > _ROWS else []


def _text(text: str, longest: int) -> str:
    return _SIGNS.sub(lambda found: f"\\{found.group()}", shortened(" ".join(printable(text).split()), longest))
