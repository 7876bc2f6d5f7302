"""What a person sees: progress on stderr, tables on stdout; plain text when piped."""

from __future__ import annotations

import sys
from contextlib import ExitStack

from rich.progress import BarColumn, SpinnerColumn, TaskID, TimeElapsedColumn
from rich.table import Column

from dmlprep.api.types import Observer
from dmlprep.cli.bars import above, bars, err, say_code, words
from dmlprep.record import StepRecord, Verdict
from dmlprep.record.speed import Bench

_TIME = 7
"""Characters of a bar's time: ``0:00:12``."""


class ProgressObserver(Observer):
    """A bar per step on stderr; one line per finished step where stderr is no terminal."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = err(quiet)
        self._bars = bars(
            self._console,
            SpinnerColumn("line"),  # ASCII: the old console of Windows has no Braille dots
            words("{task.description}"),
            BarColumn(bar_width=20),
            words("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(table_column=Column(min_width=_TIME, no_wrap=True)),
            words("{task.fields[text]}"),
            quiet=quiet,
        )
        self._task: TaskID | None = None
        self._shown = ExitStack()
        self._announced: set[tuple[str, str]] = set()
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

    def runs_code(self, file: str, code: str) -> None:
        if (file, code) not in self._announced:
            self._announced.add((file, code))
            say_code(self._console, file, code)

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
        kept = f", measured {verdict.measured[:10]} and kept" if verdict.measured else ""
        self._end(f"{verdict.outcome}{kept}", str(verdict.check))

    def measured(self, found: Bench) -> None:
        self._end(f"{found.rounds} rounds in {found.seconds:.0f} s", "bench")

    def ranking(self, share: float, text: str) -> None:
        if self._task is None:
            self._begin("rank")
        self.step_progress(share, text)

    def ranked(self, count: int, seconds: float) -> None:
        self._end(f"{count} candidates in {seconds:.1f} s", "rank")
