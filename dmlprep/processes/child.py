"""One worker process: started, asked, watched and ended, so that nothing it does reaches the caller.

A worker that crashes, hangs, eats memory, says too much or is killed from outside becomes a ``SessionFailure``. One
whose answer nobody waits for any more, after Ctrl-C, is killed. ``starting`` sees to it that it ends with its parent.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from dmlprep.files import remove_tree
from dmlprep.files.run_folder import run_folder
from dmlprep.processes.allowance import PROCESSORS, Allowance
from dmlprep.processes.failure import FailureKind, SessionFailure, failure
from dmlprep.processes.hresult import plain_text
from dmlprep.processes.limits import MemoryLimit
from dmlprep.processes.starting import Started, allowed_memory, file_command, start
from dmlprep.processes.wire import decode, encode

__all__ = ["Child", "interrupted"]

_POLL = 0.1
"""Seconds between two looks at the worker's memory while it works."""

_REFUSALS: dict[str, FailureKind] = {"load": "load", "run": "run"}

_HARD = 1.25
"""Share of the memory limit beyond which Windows itself refuses: the watch, which can say so, comes first."""

_BUSY = 0.02
"""Share of the second half of a time limit from which a worker counts as computing: a busy machine gives it little."""

_CLOSE_GRACE = 5.0
"""Seconds a worker has to end by itself before its process group is killed."""


_LINE = 4 << 20
"""Bytes of the longest line that a worker may say: names and errors are its longest."""

_AHEAD = 64
"""Lines that are read before they are taken; then the worker waits."""

_ANSWER = 256 << 20
"""Bytes of the longest answer: a line for each node of the largest models takes some megabytes."""

_LOG = 1 << 30
"""Bytes that a worker may write to its standard error."""


def _read(process: subprocess.Popen[bytes], lines: queue.Queue[bytes]) -> None:
    # Holds no Child, so that a forgotten one can be collected.
    assert process.stdout is not None
    line = b"-"
    while line:
        line = b""
        with contextlib.suppress(OSError, ValueError):
            line = process.stdout.readline(_LINE)
        while True:
            try:
                lines.put(line, timeout=1.0)
                break
            except queue.Full:
                if process.poll() is not None:  # nobody takes any more of it
                    return


def interrupted() -> bool:
    """Whether Ctrl-C, or the end of the program, is on its way through the caller: then nothing is waited for."""
    passing = sys.exc_info()[0]
    return passing is not None and issubclass(passing, KeyboardInterrupt | SystemExit)


class Child:
    """A worker process and the exchange folder it shares with this process.

    Args:
        command: makes the command line when it is given the exchange folder.
        name: what the worker is called in error texts.
        start_limit: seconds until the worker must have answered its first request.
        holds: descriptor of a file that is closed when the worker has ended.

    Attributes:
        readable: files and folders that a worker that confines itself may read, besides what the first model needs.
        confined: whether it has done so; then ``readable`` is all that it ever reads.
        sessions: how many models it serves.
    """

    def __init__(
        self,
        command: Callable[[Path], Sequence[str]],
        name: str,
        start_limit: float = 120.0,
        holds: int | None = None,
    ) -> None:
        self.name = name
        try:
            self.exchange = Path(tempfile.mkdtemp(prefix="session-", dir=run_folder()))
        except BaseException:
            _close(holds)
            raise
        self._log = self.exchange / "worker.log"
        self._lines: queue.Queue[bytes] = queue.Queue(_AHEAD)
        self._closed = False
        self._mark = 0
        self._halfway: tuple[float, float] | None = None
        self._first_look: tuple[float, float] | None = None
        self._granted = 0
        self.readable: set[Path] = set()
        self.confined = False
        self.sessions = 0
        self.start_limit = start_limit
        try:
            with self._log.open("wb") as log:
                self._started = start(
                    command(self.exchange),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log.fileno(),
                    temporary=self.exchange,
                )
        except OSError as error:
            self._remove_exchange()
            _close(holds)
            raise failure("crash", f"{name} cannot be started: {error}") from error
        except BaseException:
            self._remove_exchange()
            _close(holds)
            raise
        self._process = self._started.process
        # At the end of the program, too, for callers who forgot to close.
        self._end = weakref.finalize(self, _end, self._started, self.exchange, holds)
        threading.Thread(target=_read, args=(self._process, self._lines), name="dmlprep-reader", daemon=True).start()

    @classmethod
    def of_file(
        cls, path: str, name: str, arguments: Sequence[str] | None = None, reads: Sequence[Path] | None = None
    ) -> Child:
        """A worker that is a file of ours, and does not import all of dmlprep: it is ready much sooner.

        Args:
            arguments: where there are any, it is given the exchange folder before them.
            reads: all that it may read of the user's; it may write to the exchange folder only. ``None``: it is not
                confined, or confines itself.
        """

        def command(exchange: Path) -> Sequence[str]:
            given = [] if arguments is None else [str(exchange), *arguments]
            return file_command(path, given, () if reads is None else (exchange, *reads))

        return cls(command, name)

    @property
    def alive(self) -> bool:
        """Whether requests can still be sent."""
        return not self._closed and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the worker, which is its process group as well."""
        return self._process.pid

    def ask(
        self,
        lines: Iterable[Sequence[str]],
        *,
        limit: float,
        memory: int | None = None,
        allowance: Allowance | None = None,
        where: str = "",
    ) -> list[list[str]]:
        """Send one request and wait for its whole answer, without the closing ``ok``.

        Args:
            limit: seconds.
            memory: bytes of private memory the worker may hold meanwhile; 0 for no limit, ``None`` for the share of
                the machine's memory that holds where nobody asks for another.
            allowance: what the request may take besides. A worker may hold what it was ever allowed: it need not give
                memory back between two models.
            where: what the request is about, for the error text.

        Raises:
            SessionFailure: the worker refused, died, took too long or too much. After all but a refusal it is gone.
            UsageError: the user's memory limit is none.
        """
        if self._closed:
            raise failure("crash", f"{self.name} has ended", where)
        allowed = allowed_memory() if memory is None else MemoryLimit(memory)
        if allowance is not None:
            self._granted = max(self._granted, allowance.nbytes)
            allowance = replace(allowance, nbytes=self._granted)
        try:
            return self._asked(lines, limit, allowed, allowance, where)
        except SessionFailure:
            raise
        except BaseException:
            self.kill()  # nobody takes the rest of the answer
            raise

    def _asked(
        self,
        lines: Iterable[Sequence[str]],
        limit: float,
        memory: MemoryLimit,
        allowance: Allowance | None,
        where: str,
    ) -> list[list[str]]:
        assert self._process.stdin is not None
        self._mark = self._log_size()
        most = [n for n in (memory.nbytes, allowance.nbytes if allowance is not None else 0) if n]
        self._started.job.limit_memory(int(min(most, default=0) * _HARD))
        try:
            self._process.stdin.write(b"".join(encode(line) for line in lines))
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise self._died(where) from None
        answer: list[list[str]] = []
        said = 0
        now = time.monotonic()
        deadline, look = now + limit, now + _POLL
        self._halfway = self._first_look = None
        while True:
            line = None
            with contextlib.suppress(queue.Empty):
                line = self._lines.get(timeout=max(0.0, min(look, deadline) - time.monotonic()))
            if line is None or time.monotonic() >= look:
                self._watch(deadline, limit, memory, allowance, where)
                look = time.monotonic() + _POLL
            if line is None:
                continue
            if not line:
                raise self._died(where)
            said += len(line)
            if said > _ANSWER or not line.endswith(b"\n"):
                raise self._ended("protocol", "said more than any answer has", where)
            fields = decode(line)
            if fields == ["ok"]:
                return answer
            if fields[0] == "fail" and len(fields) == 3:
                refusal = failure(_REFUSALS.get(fields[1], "protocol"), fields[2], where)
                if refusal.kind == "device-removed":
                    self.kill()  # nothing on this device will answer any more; the next open starts afresh
                raise refusal
            answer.append(fields)

    def _watch(
        self, deadline: float, limit: float, memory: MemoryLimit, allowance: Allowance | None, where: str
    ) -> None:
        # Processes that the worker left behind can hold the pipe open, so its end is no sure sign.
        if self._process.poll() is not None and self._lines.empty():
            raise self._died(where)
        if self._halfway is None and time.monotonic() >= deadline - limit / 2:
            self._halfway = time.monotonic(), self._started.cpu_seconds()
        if time.monotonic() >= deadline:
            raise self._late(limit, where)
        held = self._started.private_bytes() if memory.nbytes or allowance is not None else 0
        if memory.nbytes and held > memory.nbytes:
            raise self._ended("memory", memory.exceeded(held), where)
        if allowance is not None:
            if held > allowance.nbytes:
                raise self._limited(*allowance.out_of_memory(held), where)
            if (used := self._used()) > allowance.seconds:
                raise self._limited(*allowance.out_of_time(used), where)
        if self._log_size() > _LOG:
            raise self._ended("protocol", f"wrote more than {_LOG >> 20} MiB to its log", where)

    def _used(self) -> float:
        """Seconds of processor time since the first look at this request, of so many processors as count."""
        now, used = time.monotonic(), self._started.cpu_seconds()
        if self._first_look is None:
            self._first_look = now, used
        began, before = self._first_look
        return min(used - before, PROCESSORS * (now - began))

    def _limited(self, why: str, fix: str, where: str) -> SessionFailure:
        self.kill()
        return SessionFailure("limit", f"{self.name} {why}", where=where, next_step=fix)

    def _ended(self, kind: FailureKind, why: str, where: str) -> SessionFailure:
        self.kill()
        return failure(kind, f"{self.name} {why}", where)

    def _late(self, limit: float, where: str) -> SessionFailure:
        """Its time is up: slow work or a hang, by the processor time that it used of late."""
        began, before = self._halfway or (time.monotonic(), 0.0)
        known = self._started.cpu_seconds()
        waited, used = time.monotonic() - began, known - before
        self.kill()
        text = f"{self.name} did not answer within {limit:g} s and was ended"
        if waited < 10 * _POLL or not known:  # too short to tell, or a system that does not
            return failure("timeout", text, where)
        busy = used >= _BUSY * waited
        how = "was computing" if busy else "did nothing"
        text += f"; it {how} (it used {used:.3g} s of processor time in the last {waited:.3g} s)"
        return failure("timeout" if busy else "hang", text, where)

    def _died(self, where: str) -> SessionFailure:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        status = self._process.poll()
        tail = self.log_tail()
        self.kill()
        if status is not None and status < 0:
            try:
                how = f"was ended by {signal.Signals(-status).name}"
            except ValueError:
                how = f"was ended by signal {-status}"
        elif status is not None and status > 0x80000000:
            how = f"ended with {status:08X}"  # a Windows exception code, such as C0000005
        else:
            how = f"ended with exit code {status}"
        if status == -9:
            how += " (the system's out-of-memory killer does that)"
        text = f"{self.name} {how}" + (f"; its last words: {tail}" if tail else "")
        return failure("memory" if "bad_alloc" in tail or "MemoryError" in tail else "crash", text, where)

    def log_tail(self, size: int = 1500) -> str:
        """The end of what the worker wrote to its standard error since the last request, as plain text."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(self._mark, self._log_size() - size))
                return plain_text(log.read())
        except OSError:
            return ""

    def _log_size(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def log(self) -> bytes:
        """All that the worker wrote to its standard error."""
        try:
            return self._log.read_bytes()
        except OSError:
            return b""

    def kill(self) -> None:
        """End the worker and every process of its group at once, and remove the exchange folder."""
        self._closed = True
        self._end()

    def close(self) -> None:
        """Let the worker end by itself, then make sure of it; at once where Ctrl-C is passing."""
        if self.alive and self._process.stdin is not None and not interrupted():
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(b"quit\n")
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_CLOSE_GRACE)
        self.kill()

    def _remove_exchange(self) -> None:
        remove_tree(self.exchange, ignore_errors=True)


def _close(holds: int | None) -> None:
    if holds is not None:
        os.close(holds)


def _end(started: Started, exchange: Path, holds: int | None) -> None:
    """What must happen to a worker once, however it comes to its end."""
    if started.parent != os.getpid():
        return  # forked off: the worker is the parent's
    started.kill()
    process = started.process
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10.0)
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError, ValueError):
            if pipe is not None:
                pipe.close()
    remove_tree(exchange, ignore_errors=True)
    _close(holds)
    started.forget()
