"""Show the record of a fleet (many models prepared by one command) as text: a table of jobs, and what is not good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from dmlprep.core.text.sizes import bytes_text, count_text
from dmlprep.portable.printable import printable, shortened
from dmlprep.record.fleet import OUTCOMES, FleetRecord, JobRecord
from dmlprep.report.tables import show_table

_ROWS = 200
"""The most rows of the table. ``fleet.json`` and the index have all jobs."""

_REASON = 300
"""The most characters of a reason."""

COLUMNS = ("job", "verdict", "on DirectML", "worst error", "weights", "seconds")

_STYLE = {"good": "green", "review": "yellow", "not run": "yellow"}


def numbers_of(job: JobRecord) -> tuple[str, str, str, str]:
    """Return the texts of a job's table cells: nodes on DirectML, worst error, size of weights, and duration.

    The text for the duration is ``reused`` if the result comes from an earlier run.
    """
    placed = "" if job.nodes is None else f"{job.dml_nodes or 0} of {job.nodes}"
    error = "" if job.worst_error is None else f"{job.worst_error:.2g}"
    size = "" if job.bytes_after is None else bytes_text(job.bytes_after)
    return placed, error, size, "reused" if job.reused else f"{job.seconds:.1f}"


def counted(record: FleetRecord) -> str:
    """Return the counts of jobs as text: ``30 jobs: 1 failed, 4 review, 25 good (20 known from before)``."""
    known_count = sum(job.reused for job in record.jobs)
    words = Counter(job.word for job in worst_first(record.jobs))
    parts = ", ".join(f"{count} {word}" for word, count in words.items())
    known = f" ({known_count} known from before)" if known_count else ""
    return f"{count_text(len(record.jobs), 'job')}{f': {parts}' if parts else ''}{known}"


def show_fleet(record: FleetRecord, console: Console, *, brief: bool = False) -> None:
    """Print the counts, a table of the jobs (not if ``brief``), and the reason for each job that is not good."""
    console.print(Text(counted(record), style="bold"))
    shown = worst_first(record.jobs)
    if not brief:
        console.print()
        _show_table(shown, console)
    wrong = [job for job in shown if job.exit_code]
    for job in wrong[:_ROWS]:
        why = shortened(printable(job.error), _REASON)
        console.print(Text(f"{printable(job.name)}: {job.word}: {why}"))
    if len(wrong) > _ROWS:
        console.print(Text(f"{len(wrong) - _ROWS} more in fleet.json"))


def _show_table(jobs: Sequence[JobRecord], console: Console) -> None:
    rows = []
    for job in jobs[:_ROWS]:
        rows.append((job.name, Text(job.word, style=_STYLE.get(job.word, "red")), *numbers_of(job)))
    show_table(console, COLUMNS, rows, left_aligned=("verdict",))
    if len(jobs) > _ROWS:
        console.print(Text(f"{len(jobs) - _ROWS} more in fleet.json", style="dim"))
    if any(job.exit_code for job in jobs):
        console.print()


def worst_first(jobs: Sequence[JobRecord]) -> list[JobRecord]:
    """Return the jobs in a new order: the worst outcomes first."""
    order = {outcome: place for place, outcome in enumerate(OUTCOMES.values())}
    return sorted(jobs, key=lambda job: (order[job.outcome], job.level != "warn"))
