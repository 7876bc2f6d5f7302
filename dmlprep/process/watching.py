"""Hold a process and all below it to limits of time, memory and output."""

from __future__ import annotations

import contextlib
import math
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dmlprep.portable.limits import MemoryLimit
from dmlprep.process.allowance import PROCESSORS, Allowance
from dmlprep.process.ending import Ending
from dmlprep.process.starting import Started

_UNLIMITED = MemoryLimit(0)

_BUSY = 0.02
"""Share of the second half of a time limit from which a process counts as computing: a busy machine gives it little."""

_TOO_SHORT = 1.0
"""Seconds that are too few to distinguish a hang from work."""


class Watch(msgspec.Struct):
    """Limits of a process for one piece of work, which begins now: seconds by the clock, private bytes, an allowance.

    Each of its output ``files`` may have ``written`` bytes.
    """

    started: Started
    seconds: float = math.inf
    memory: MemoryLimit = _UNLIMITED
    allowance: Allowance | None = None
    files: Sequence[Path] = ()
    written: int = 0
    _began: float = msgspec.field(default_factory=time.monotonic)
    _halfway: tuple[float, float] | None = None
    _first: tuple[float, float] | None = None

    @property
    def remaining(self) -> float:
        """Seconds until its time is up."""
        return max(0.0, self._began + self.seconds - time.monotonic())

    def look(self) -> Ending | None:
        """Return the limit that it exceeds. It is not ended here."""
        now, held = time.monotonic(), 0
        if self._halfway is None and now - self._began >= self.seconds / 2:
            self._halfway = now, self.started.cpu_seconds()
        if not self.remaining:
            return self._late(now)
        if self.memory.nbytes or self.allowance is not None:
            held = self.started.private_bytes()
        if 0 < self.memory.nbytes < held:
            return Ending("memory", limit=self.memory.nbytes, used=held, why=self.memory.why)
        if self.allowance is not None and (over := self.allowance.over(held, self._used(now))):
            return over
        with contextlib.suppress(OSError):
            if any(path.stat().st_size > self.written for path in self.files):
                return Ending("output", limit=self.written)
        return None

    def wait(self, every: float) -> Ending:
        """Wait until the process ends, or end it at a limit; look after so many seconds, when Windows hears Ctrl-C."""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return Ending.of(self.started.process.wait(min(every, self.remaining)))
            if over := self.look():
                self.started.kill()
                return over

    def _used(self, now: float) -> float:
        """Seconds of processor time since the first look, of so many processors as count."""
        used = self.started.cpu_seconds()
        if self._first is None:
            self._first = now, used
        began, before = self._first
        return min(used - before, PROCESSORS * (now - began))

    def _late(self, now: float) -> Ending:
        """Its time is up: slow work or a hang, by the processor time that it used of late."""
        began, before = self._halfway or (now, 0.0)
        waited, known = now - began, self.started.cpu_seconds()
        if waited < _TOO_SHORT or not known:  # or the system does not count
            return Ending("timeout", limit=self.seconds)
        used = known - before
        return Ending("timeout" if used >= _BUSY * waited else "hang", limit=self.seconds, used=used, waited=waited)
