"""How a child process ended, as a value and in words."""

from __future__ import annotations

import contextlib
import signal
from typing import Literal

import msgspec

from dmlprep.portable.limits import MemoryLimit

_EXCEPTION = 0x80000000
"""Exit codes above this are Windows exceptions, such as C0000005."""

_SIGKILL = 9  # signal.SIGKILL, which Windows lacks


class Ending(msgspec.Struct, frozen=True):
    """How a process ended.

    Attributes:
        kind: ``exit``, ``signal``, ``exception`` (Windows): dmlprep did not end it. The other kinds: dmlprep ended it
            at a limit. ``timeout``: it was still computing, or this is unknown; ``hang``: it did nothing;
            ``processor``: too much CPU time; ``memory``: too much memory; ``output``: it wrote too much.
        code: number of the exit code, signal or exception; ``None`` if unknown.
        limit: the exceeded limit, in seconds or bytes.
        used: seconds or bytes; for ``timeout`` and ``hang`` CPU seconds in the last ``waited`` seconds.
        waited: clock seconds over which ``used`` was measured; 0: not measured.
        why: the reason for the limit.
        fix: how to raise the limit, if the user can.
    """

    kind: Literal["exit", "signal", "exception", "timeout", "hang", "processor", "memory", "output"]
    code: int | None = None
    limit: float = 0
    used: float = 0
    waited: float = 0
    why: str = ""
    fix: str = ""

    @classmethod
    def of(cls, status: int | None) -> Ending:
        """Return the ending for a return code of ``subprocess``; ``None`` gives ``exit`` with an unknown code."""
        if status is not None and status < 0:
            return cls("signal", -status)
        return cls("exception" if status is not None and status > _EXCEPTION else "exit", status)

    @property
    def killed(self) -> bool:
        """True if SIGKILL ended it, which the system's out-of-memory killer sends."""
        return self.kind == "signal" and self.code == _SIGKILL

    @property
    def cause(self) -> str:
        """The signal, exception or exit code as text: ``SIGSEGV``, ``C0000005`` or ``exit code 3``."""
        if self.kind == "exception":
            return f"{self.code:08X}"
        if self.kind == "signal":
            with contextlib.suppress(ValueError):
                return signal.Signals(self.code or 0).name
            return f"signal {self.code}"
        return f"exit code {self.code}"

    @property
    def words(self) -> str:
        """The end of a sentence whose subject is the process: ``was killed by SIGSEGV``."""
        match self.kind:
            case "exit" | "exception":
                return f"ended with {self.cause}"
            case "signal":
                return f"was killed by {self.cause}"
            case "memory":
                return MemoryLimit(int(self.limit), self.why).exceeded(int(self.used))
            case "output":
                return f"wrote more than {int(self.limit) >> 20} MiB and was stopped"
            case "processor":
                limit = f"the limit is {self.limit:.3g} s ({self.why})"
                return f"used {self.used:.3g} s of processor time, {limit}, and was stopped"
        text = f"did not answer within {self.limit:g} s and was stopped"
        if not self.waited:
            return text
        how = "did nothing" if self.kind == "hang" else "was computing"
        return f"{text}; it {how} (it used {self.used:.3g} s of processor time in the last {self.waited:.3g} s)"


def out_of_memory(last_words: str) -> bool:
    """Return whether the last output of a process reports a failed allocation, in C++ or Python."""
    return "bad_alloc" in last_words or "MemoryError" in last_words
