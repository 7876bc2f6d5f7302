"""Enforce limits of time, memory and output on a process and its descendants."""

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
"""Smallest CPU share, in the second half of a time limit, that counts as computing. It is low because the machine may
be busy."""

_TOO_SHORT = 1.0
"""Seconds that are too short to distinguish a hang from work."""


class Watch(msgspec.Struct):
    """Limits of a process for one piece of work, which begins when this object is made.

    Attributes:
        started: the process.
        seconds: limit of clock time.
        memory: limit of private memory.
        allowance: further limits, of memory and CPU time; ``None`` for none.
        files: output files of the process.
        written: limit for the size of each of the ``files``, in bytes.
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
        """Clock seconds until the time limit; 0 after it."""
        return max(0.0, self._began + self.seconds - time.monotonic())

    def look(self) -> Ending | None:
        """Check all limits once. Return the exceeded one as an ending, or ``None``. The process is not ended."""
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
        """Wait until the process ends, or kill it at a limit; return how it ended.

        It checks every ``every`` seconds, when Windows can deliver Ctrl-C.
        """
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return Ending.of(self.started.process.wait(min(every, self.remaining)))
            if over := self.look():
                self.started.kill()
                return over

    def _used(self, now: float) -> float:
        """Return the CPU seconds since the first check, at most ``PROCESSORS`` times the clock time since then."""
        used = self.started.cpu_seconds()
        if self._first is None:
            self._first = now, used
        began, before = self._first
        return min(used - before, PROCESSORS * (now - began))

    def _late(self, now: float) -> Ending:
        """Return the ending for an exceeded time limit: ``hang`` or ``timeout``.

        It is a hang if the process used almost no CPU time in the second half of the time. It is a timeout if that half
        is below ``_TOO_SHORT``, or if the CPU time is unknown.
        """
        began, before = self._halfway or (now, 0.0)
        waited, known = now - began, self.started.cpu_seconds()
        if waited < _TOO_SHORT or not known:  # or the system does not report CPU time
            return Ending("timeout", limit=self.seconds)
        used = known - before
        return Ending("timeout" if used >= _BUSY * waited else "hang", limit=self.seconds, used=used, waited=waited)
