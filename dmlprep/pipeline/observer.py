"""The observer of a run: the interface through which a run reports its progress, such as to the command line."""

from __future__ import annotations

from dmlprep.record import StepRecord, Verdict
from dmlprep.record.speed import Bench


class Observer:
    """Receiver of a run's events: a run calls these methods. They do nothing here; override those that you need."""

    def notice(self, text: str) -> None:
        """Receive a text about something that is about to happen, for the user."""

    def runs_code(self, file: str, code: str) -> None:
        """Receive a warning that the user must see: the run is about to execute code that a settings file names.

        Args:
            file: the recipe or project file that names the code.
            code: the metric, as ``FILE.py:FUNCTION``.
        """

    def step_started(self, name: str, index: int, total: int) -> None:
        """Receive the start of a step: its name, its number ``index`` counted from 1, and the ``total`` of steps."""

    def step_progress(self, share: float, text: str) -> None:
        """Receive progress of the running step or check: ``share`` is the part that is done, 0 to 1."""

    def step_finished(self, record: StepRecord) -> None:
        """Receive the record of a step that is done."""

    def saving(self, done: int, total: int) -> None:
        """Receive progress of writing the model: ``done`` of ``total`` bytes of its tensors."""

    def check_started(self, name: str) -> None:
        """Receive the start of a check, by its name (``parity on cpu``)."""

    def check_finished(self, verdict: Verdict) -> None:
        """Receive the verdict of a check that is done."""

    def measured(self, measurement: Bench) -> None:
        """Receive the times of the models, after they were measured (``prepare --bench`` and ``tune``)."""

    def ranking(self, share: float, text: str) -> None:
        """Receive progress of ``tune``'s ranking: the ``share`` of its time, 0 to 1; ``text`` names the candidate."""

    def ranked(self, count: int, seconds: float) -> None:
        """Receive the end of the ranking of ``tune``: how many candidates were ranked, and in how many seconds."""
