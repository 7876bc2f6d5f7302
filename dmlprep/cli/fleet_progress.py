"""What a person sees of a fleet: a bar of all jobs, and below it one for each that runs; plain lines when piped."""

from __future__ import annotations

import sys
from contextlib import ExitStack

from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TimeElapsedColumn

from dmlprep.api.types import FleetObserver
from dmlprep.cli.bars import above, bars, err, say_code, words
from dmlprep.portable.printable import printable, shortened
from dmlprep.record.fleet import JobRecord

_TEXT = 60
"""Characters of what a job says."""


class FleetProgress(FleetObserver):
    """Bars on stderr; one line for each job that ran where stderr is no terminal."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = err(quiet)
        self._bars = bars(
            self._console,
            SpinnerColumn("line"),
            words("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            words("{task.fields[text]}"),
            quiet=quiet,
        )
        self._plain = not quiet and not sys.stderr.isatty()
        self._shown = ExitStack()
        self._all: TaskID | None = None
        self._running: dict[str, TaskID] = {}
        self._total = self._ended = self._bad = 0

    def __enter__(self) -> FleetProgress:
        self._shown.enter_context(above(self._bars))
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()

    def began(self, total: int) -> None:
        self._total = total
        self._all = self._bars.add_task("jobs", total=total, text="")

    def runs_code(self, file: str, code: str) -> None:
        say_code(self._console, file, code)

    def job_started(self, name: str) -> None:
        self._running[name] = self._bars.add_task(shortened(printable(name), _TEXT), total=None, text="")

    def job_progress(self, name: str, text: str) -> None:
        if name in self._running:
            self._bars.update(self._running[name], text=shortened(printable(text), _TEXT))

    def job_ended(self, row: JobRecord) -> None:
        self._ended += 1
        self._bad += bool(row.exit_code)
        if (task := self._running.pop(row.name, None)) is not None:
            self._bars.remove_task(task)
        if self._all is not None:
            text = f"{self._bad} not good" if self._bad else ""
            self._bars.update(self._all, completed=self._ended, text=text)
        if self._plain and not row.kept:
            outcome = row.outcome.replace("-", " ")
            self._console.print(f"{self._ended}/{self._total} {row.name}: {outcome}, {row.seconds:.1f} s")

    def job_removed(self, name: str, whole: bool) -> None:
        said = "removed" if whole else "not removed as a whole: files that are not of the fleet, or another run"
        self._console.print(f"{printable(name)}: {said}")
