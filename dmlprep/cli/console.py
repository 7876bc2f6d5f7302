"""Progress bars for a model, a fleet or an installation; plain lines when piped."""

from __future__ import annotations

from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TimeElapsedColumn
from rich.table import Column

from dmlprep.api.types import FleetObserver, Observer
from dmlprep.cli.bars import Bars, say_code, words
from dmlprep.core.text.sizes import bytes_text, count_text
from dmlprep.portable.printable import printable, shortened
from dmlprep.record import StepRecord, Verdict
from dmlprep.record.fleet import JobRecord
from dmlprep.record.speed import Bench

_TIME = 7
"""Characters of a bar's time: ``0:00:12``."""

_TEXT = 60
"""Characters of a job's name and of its last line."""


class ProgressObserver(Bars, Observer):
    """A bar for each step of a run; one line for each finished step if stderr is not a terminal."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(
            SpinnerColumn("line"),  # ASCII: the old console of Windows has no Braille dots
            words("{task.description}"),
            BarColumn(bar_width=20),
            words("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(table_column=Column(min_width=_TIME, no_wrap=True)),
            words("{task.fields[text]}"),
            quiet=quiet,
        )
        self._task: TaskID | None = None
        self._announced: set[tuple[str, str]] = set()

    def _begin(self, name: str) -> None:
        self._task = self._bars.add_task(name, total=1.0, text="")

    def _end(self, text: str, name: str) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=1.0, text=text)
            self._task = None
        if self._plain:
            self._console.print(f"{name}: {text}")

    def notice(self, text: str) -> None:
        """Print the text."""
        self._console.print(text)

    def runs_code(self, file: str, code: str) -> None:
        """Print the code's file and name, once for each."""
        if (file, code) not in self._announced:
            self._announced.add((file, code))
            say_code(self._console, file, code)

    def step_started(self, name: str, index: int, total: int) -> None:
        """Show the bar of a step."""
        self._begin(f"{index}/{total} {name}")

    def step_progress(self, share: float, text: str) -> None:
        """Update the bar of the running step."""
        if self._task is not None:
            self._bars.update(self._task, completed=min(share, 1.0), text=text)

    def step_finished(self, record: StepRecord) -> None:
        """Remove the bar of the step, and print its outcome."""
        text: str = record.outcome
        if record.nodes_after != record.nodes_before:
            text += f", {record.nodes_before} -> {record.nodes_after} nodes"
        self._end(text, record.step)

    def saving(self, done: int, total: int) -> None:
        """Show the written bytes."""
        if self._task is None:
            self._begin("save")
        self.step_progress(done / total if total else 1.0, f"{bytes_text(done)} of {bytes_text(total)}")
        if done >= total:
            self._end(bytes_text(total), "save")

    def check_started(self, name: str) -> None:
        """Show the bar of a check."""
        self._begin(name)

    def check_finished(self, verdict: Verdict) -> None:
        """Remove the bar of the check, and print its verdict."""
        source = f", from the cache ({verdict.measured[:10]})" if verdict.measured else ""
        self._end(f"{verdict.outcome}{source}", str(verdict.check))

    def measured(self, measurement: Bench) -> None:
        """Print the number of rounds and their time."""
        self._end(f"{measurement.rounds} rounds in {measurement.seconds:.0f} s", "bench")

    def ranking(self, share: float, text: str) -> None:
        """Update the bar of the ranking."""
        if self._task is None:
            self._begin("rank")
        self.step_progress(share, text)

    def ranked(self, count: int, seconds: float) -> None:
        """Remove the bar of the ranking, and print the number of candidates."""
        self._end(f"{count_text(count, 'candidate')} in {seconds:.1f} s", "rank")


class FleetProgress(Bars, FleetObserver):
    """A bar of all jobs, and one for each that runs; one line for each job that ran if stderr is not a terminal."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(
            SpinnerColumn("line"),
            words("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            words("{task.fields[text]}"),
            quiet=quiet,
        )
        self._all: TaskID | None = None
        self._running: dict[str, TaskID] = {}
        self._total = self._ended = self._bad = 0

    def began(self, total: int) -> None:
        """Show the bar of all jobs."""
        self._total = total
        self._all = self._bars.add_task("jobs", total=total, text="")

    def runs_code(self, file: str, code: str) -> None:
        """Print the code's file and name."""
        say_code(self._console, file, code)

    def job_started(self, name: str) -> None:
        """Show the bar of a job."""
        self._running[name] = self._bars.add_task(shortened(printable(name), _TEXT), total=None, text="")

    def job_progress(self, name: str, text: str) -> None:
        """Update the bar of a job."""
        if name in self._running:
            self._bars.update(self._running[name], text=shortened(printable(text), _TEXT))

    def job_ended(self, row: JobRecord) -> None:
        """Remove the bar of the job, and count it; on a plain console, print its outcome."""
        self._ended += 1
        self._bad += bool(row.exit_code)
        if (task := self._running.pop(row.name, None)) is not None:
            self._bars.remove_task(task)
        if self._all is not None:
            text = f"{self._bad} not good" if self._bad else ""
            self._bars.update(self._all, completed=self._ended, text=text)
        if self._plain and not row.reused:
            self._console.print(f"{self._ended}/{self._total} {row.name}: {row.word}, {row.seconds:.1f} s")

    def job_removed(self, name: str, whole: bool) -> None:
        """Print whether the folder of a job was removed completely."""
        outcome = "removed" if whole else "not fully removed: it has files of another run or program"
        self._console.print(f"{printable(name)}: {outcome}")


class InstallProgress(Bars):
    """A bar for each stage of an installation; one line for each if stderr is not a terminal."""

    def __init__(self, quiet: bool) -> None:
        columns = (SpinnerColumn(), words("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
        super().__init__(*columns, quiet=quiet)
        self._stage = ""
        self._task: TaskID | None = None

    def __exit__(self, *_: object) -> None:
        self._finish()
        super().__exit__()

    def _finish(self) -> None:
        if self._task is not None:
            self._bars.update(self._task, total=1, completed=1)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show the progress of a stage: ``done`` of ``total``, which is 0 if it is unknown."""
        if self._task is None or stage != self._stage:
            self._finish()
            self._stage = stage
            self._task = self._bars.add_task(stage, total=total or None)
            if self._plain:
                self._console.print(f"{stage} ...")
        if total:
            self._bars.update(self._task, total=total, completed=done)
