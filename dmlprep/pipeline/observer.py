"""Who watches a run: the command line's progress bars, or nobody."""

from __future__ import annotations

from dmlprep.record import StepRecord, Verdict
from dmlprep.record.speed import Bench


class Observer:
    """Told what a run does. Every method may be left as it is."""

    def told(self, text: str) -> None:
        """Something that the user should know before it happens."""

    def runs_code(self, file: str, code: str) -> None:
        """Code that a file names (a metric) is about to run: ``FILE.py:FUNCTION``. A user should see it in any case."""

    def step_started(self, name: str, index: int, total: int) -> None:
        """Step ``index`` of ``total`` begins, counted from 1."""

    def step_progress(self, share: float, text: str) -> None:
        """The running step is ``share`` done, 0 to 1."""

    def step_finished(self, record: StepRecord) -> None:
        """A step is done."""

    def saving(self, done: int, total: int) -> None:
        """``done`` of ``total`` tensor bytes are written."""

    def check_started(self, name: str) -> None:
        """A check (``parity on cpu``) begins."""

    def check_finished(self, verdict: Verdict) -> None:
        """A check has its verdict."""

    def measured(self, found: Bench) -> None:
        """The models were timed."""

    def ranking(self, share: float, text: str) -> None:
        """``tune`` ranks candidates: ``share`` of its time is over, 0 to 1; ``text`` is the one it looks at."""

    def ranked(self, count: int, seconds: float) -> None:
        """So many candidates were ranked, in so many seconds."""
