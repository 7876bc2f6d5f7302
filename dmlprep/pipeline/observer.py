"""The observer of a run: the command line's progress bars, or none."""

from __future__ import annotations

from dmlprep.record import StepRecord, Verdict
from dmlprep.record.speed import Bench


class Observer:
    """Receiver of a run's events. No method has to be overridden."""

    def notice(self, text: str) -> None:
        """Report something that the user should know before it happens."""

    def runs_code(self, file: str, code: str) -> None:
        """Report that code named in a file (a metric) is about to run: ``FILE.py:FUNCTION``. The user must see it."""

    def step_started(self, name: str, index: int, total: int) -> None:
        """Report that step ``index`` of ``total`` begins, counted from 1."""

    def step_progress(self, share: float, text: str) -> None:
        """Report that the running step is ``share`` done, 0 to 1."""

    def step_finished(self, record: StepRecord) -> None:
        """Report that a step is done."""

    def saving(self, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` tensor bytes are written."""

    def check_started(self, name: str) -> None:
        """Report that a check (``parity on cpu``) begins."""

    def check_finished(self, verdict: Verdict) -> None:
        """Report the verdict of a check."""

    def measured(self, measurement: Bench) -> None:
        """Report that the models were timed."""

    def ranking(self, share: float, text: str) -> None:
        """Report progress of ``tune``'s ranking: ``share`` of its time, 0 to 1, and ``text``, the present candidate."""

    def ranked(self, count: int, seconds: float) -> None:
        """Report how many candidates were ranked, and in how many seconds."""
