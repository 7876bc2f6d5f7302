"""What a person sees: progress on stderr, tables on stdout; plain text when piped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from dmlprep.cli.streams import Guarded, own
from dmlprep.pipeline.observer import Observer
from dmlprep.record import StepRecord, Verdict
from dmlprep.record.speed import Bench
from dmlprep.report.console import PlainConsole
from dmlprep.report.text import PIPED

__all__ = ["ProgressObserver", "above", "bars", "err", "out", "words"]

_NARROWEST = 80
"""Characters a line of the narrowest table that says what it must."""


def out() -> Console:
    """The console of results: no colour when piped or with NO_COLOR, no wrapping where there is no terminal."""
    console = PlainConsole(file=own(sys.stdout), soft_wrap=not sys.stdout.isatty())
    # A narrow terminal breaks the lines of a table itself, which can be read; one squeezed to "unc…  0.…" cannot.
    console.width = max(console.width, _NARROWEST) if sys.stdout.isatty() else PIPED
    return console


def err(quiet: bool = False) -> Console:
    """The console of progress."""
    return PlainConsole(file=own(sys.stderr), quiet=quiet)


def words(form: str) -> ProgressColumn:
    """A column of a bar that shows a field: ``{task.description}``."""
    return TextColumn(form, markup=False)


def bars(console: Console, *columns: ProgressColumn, quiet: bool = False) -> Progress:
    """Bars of progress, on a terminal alone."""
    hidden = quiet or not sys.stderr.isatty()
    # What others write meanwhile is rich's to redirect, and it would take their codes for colours: see ``above``.
    return Progress(*columns, console=console, disable=hidden, redirect_stdout=False, redirect_stderr=False)


@contextmanager
def above(progress: Progress) -> Iterator[None]:
    """Show bars; what others write to stdout and stderr meanwhile stands above them."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, Guarded)]
    with progress:
        for stream in streams:
            stream.beside = None if progress.disable else lambda text: progress.console.print(Text(text))
        try:
            yield
        finally:
            for stream in streams:
                stream.beside = None


class ProgressObserver(Observer):
    """A bar per step on stderr; one line per finished step where stderr is no terminal."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = err(quiet)
        self._bars = bars(
            self._console,
            SpinnerColumn("line"),  # ASCII: the old console of Windows has no Braille dots
            words("{task.description}"),
            BarColumn(),
            words("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            words("{task.fields[text]}"),
            quiet=quiet,
        )
        self._task: TaskID | None = None
        self._shown = ExitStack()
        self._plain = not quiet and not sys.stderr.isatty()

    def __enter__(self) -> ProgressObserver:
        self._shown.enter_context(above(self._bars))
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()

    def _begin(self, name: str) -> None:
        self._task = self._bars.add_task(name, total=1.0, text="")

    def _end(self, text: str, name: str) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=1.0, text=text)
            self._task = None
        if self._plain:
            self._console.print(f"{name}: {text}")

    def told(self, text: str) -> None:
        self._console.print(text)

    def step_started(self, name: str, index: int, total: int) -> None:
        self._begin(f"{index}/{total} {name}")

    def step_progress(self, share: float, text: str) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=min(share, 1.0), text=text)

    def step_finished(self, record: StepRecord) -> None:
        text: str = record.outcome
        if record.nodes_after != record.nodes_before:
            text += f", {record.nodes_before} -> {record.nodes_after} nodes"
        self._end(text, record.step)

    def saving(self, done: int, total: int) -> None:
        if self._task is None:
            self._begin("save")
        self.step_progress(done / total if total else 1.0, f"{done / 1e6:.0f} of {total / 1e6:.0f} MB")
        if done >= total:
            self._end(f"{total / 1e6:.0f} MB", "save")

    def check_started(self, name: str) -> None:
        self._begin(name)

    def check_finished(self, verdict: Verdict) -> None:
        self._end(verdict.outcome, verdict.check)

    def measured(self, found: Bench) -> None:
        self._end(f"{found.rounds} rounds in {found.seconds:.0f} s", "bench")

    def ranking(self, share: float, text: str) -> None:
        if self._task is None:
            self._begin("rank")
        self.step_progress(share, text)

    def ranked(self, count: int, seconds: float) -> None:
        self._end(f"{count} candidates in {seconds:.1f} s", "rank")
