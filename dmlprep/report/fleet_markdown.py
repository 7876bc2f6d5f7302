"""A fleet's record as Markdown, for the summaries of CI systems: the table of the jobs, and why some are not good.

GitHub takes 1 MiB of summary a step (GitHub Docs, "Workflow commands for GitHub Actions"): rows and texts are bounded.
"""

from __future__ import annotations

from dmlprep.core.text.markdown import Markdown, table, text
from dmlprep.core.text.sizes import bytes_text
from dmlprep.record.fleet import FleetRecord, JobRecord
from dmlprep.report.fleet import counted, word_of, worst_first

_ROWS = 200
_NAME, _REASON = 200, 600
"""Characters of a name and of a reason; escaped they are at most twice as many."""

_HEAD = ("job", "verdict", "on DirectML", "worst error", "weights", "seconds")
_ALIGN = ("---", "---", "--:", "--:", "--:", "--:")


def render_markdown(record: FleetRecord) -> str:
    """The record as GitHub Flavored Markdown; names of files stand there as they are, not as forms of Markdown."""
    part = f", part {text(record.shard)}" if record.shard else ""
    lines = [f"### {text(counted(record), _REASON)}{part}", ""]
    jobs = worst_first(record.jobs) if len(record.jobs) > _ROWS else record.jobs
    if jobs:
        lines += table(_HEAD, map(_cells, jobs[:_ROWS]), _ALIGN)
        lines += ["", *_more(len(jobs))]
    wrong = [job for job in worst_first(record.jobs) if job.exit_code]
    if wrong:
        lines += [f"- **{text(job.name, _NAME)}**: {text(job.error, _REASON)}" for job in wrong[:_ROWS]]
        lines += ["", *_more(len(wrong))]
    return "\n".join(lines).rstrip("\n") + "\n"


def _cells(job: JobRecord) -> list[Markdown]:
    placed = "" if job.nodes is None else f"{job.dml_nodes or 0} of {job.nodes}"
    error = "" if job.worst_error is None else f"{job.worst_error:.2g}"
    size = "" if job.bytes_after is None else bytes_text(job.bytes_after)
    taken = "kept" if job.kept else f"{job.seconds:.1f}"
    word = word_of(job)
    verdict = text(word) if word == "good" else Markdown(f"**{text(word)}**")
    return [text(job.name, _NAME), verdict, *map(text, (placed, error, size, taken))]


def _more(count: int) -> list[str]:
    return [f"{count - _ROWS} more are in fleet.json", ""] if count > _ROWS else []
