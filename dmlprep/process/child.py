"""Run one worker process: start it, send requests, watch it and end it, without effects on the caller.

A worker that crashes, hangs, uses too much memory, writes too much or is killed becomes a ``SessionFailure``. A worker
is killed if its caller stops waiting for the answer, for example after Ctrl-C. ``starting`` makes it end with its
parent.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from dmlprep.core.files import remove_tree
from dmlprep.core.files.run_folder import run_folder
from dmlprep.portable.hresult import plain_text
from dmlprep.portable.limits import MemoryLimit
from dmlprep.process.allowance import Allowance
from dmlprep.process.ending import Ending, out_of_memory
from dmlprep.process.failure import FailureKind, SessionFailure, failure
from dmlprep.process.starting import Started, allowed_memory, file_command, start
from dmlprep.process.watching import Watch
from dmlprep.process.wire import decode, encode

_POLL = 0.1
"""Seconds between two checks of the worker's memory during a request."""

_REFUSALS: dict[str, FailureKind] = {"load": "load", "run": "run", "memory": "memory"}

_KINDS: dict[str, FailureKind] = {"timeout": "timeout", "hang": "hang", "memory": "memory", "output": "protocol"}

_HARD = 1.25
"""Multiple of the memory limit above which Windows itself refuses memory. The check, which can report it, comes
first."""

START_LIMIT = 120.0
"""Seconds that a worker may take to answer its first request."""

_CLOSE_GRACE = 5.0
"""Seconds that a worker may take to end by itself before its process group is killed."""

_LINE = 4 << 20
"""Limit for the length of one line of a worker, in bytes. The longest lines have names and errors."""

_AHEAD = 64
"""Number of lines of a worker that are read in advance; then the worker waits."""

_ANSWER = 256 << 20
"""Limit for the size of one answer, in bytes. A line for each node of the largest models takes some megabytes."""

_LOG, _LAST = 1 << 30, 1500
"""Limit for the size of a worker's standard error, and size of its end that an error shows, in bytes."""


def _read(process: subprocess.Popen[bytes], lines: queue.Queue[bytes]) -> None:
    # This function has no reference to the Child, so that an unused one can be garbage-collected.
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
                if process.poll() is not None:  # the rest is not read
                    return


def interrupted() -> bool:
    """Return whether the caller is handling Ctrl-C or the end of the program; then it should wait for nothing."""
    passing = sys.exc_info()[0]
    return passing is not None and issubclass(passing, KeyboardInterrupt | SystemExit)


class Child:
    """A worker process, and the exchange folder that it shares with this process.

    Args:
        command: a function that returns the command line for an exchange folder.
        name: names the worker in errors.
        holds: a file descriptor to close when the worker has ended.

    Attributes:
        readable: files and folders of the user that a worker may read after it confines itself, with the first model's.
        confined: whether it has confined itself; then ``readable`` no longer changes.
        sessions: the number of models that it serves.

    Raises:
        SessionFailure: the worker does not start.
        OSError: there is no folder for temporary files.
    """

    def __init__(self, command: Callable[[Path], Sequence[str]], name: str, holds: int | None = None) -> None:
        self.name = name
        try:
            self.exchange = Path(tempfile.mkdtemp(prefix="session-", dir=run_folder()))
        except BaseException:
            _close(holds)
            raise
        self._log = self.exchange / "worker.log"
        self._lines: queue.Queue[bytes] = queue.Queue(_AHEAD)
        self._closed = self.confined = False
        self._mark = self._granted = self.sessions = 0
        self.readable: set[Path] = set()
        try:
            with self._log.open("wb") as log:
                streams = (subprocess.PIPE, subprocess.PIPE, log.fileno())
                self._started = start(command(self.exchange), streams, temporary=self.exchange)
        except BaseException as error:
            remove_tree(self.exchange, ignore_errors=True)
            _close(holds)
            if isinstance(error, OSError):
                fix = "check that Python can start processes here, and that memory and disk are not full"
                raise SessionFailure("crash", f"{name} does not start: {error}", next_step=fix) from error
            raise
        self._process = self._started.process
        # This also runs at the end of the program, for callers that forgot to close.
        self._end = weakref.finalize(self, _end, self._started, self.exchange, holds)
        threading.Thread(target=_read, args=(self._process, self._lines), name="dmlprep-reader", daemon=True).start()

    @classmethod
    def of_file(
        cls, path: str, name: str, arguments: Sequence[str] | None = None, reads: Sequence[Path] | None = None
    ) -> Child:
        """Start a worker that runs a single Python file, without importing all of dmlprep: it is ready much sooner.

        Args:
            arguments: arguments of the file, after the exchange folder. ``None``: no arguments, not even the folder.
            reads: the only user files that it may read; it may write only to the exchange folder. It applies if the
                system supports it (``process/confinement.py``). ``None``: it is not confined, or confines itself.
        """

        def command(exchange: Path) -> Sequence[str]:
            child_arguments = [] if arguments is None else [str(exchange), *arguments]
            return file_command(path, child_arguments, () if reads is None else (exchange, *reads))

        return cls(command, name)

    @property
    def alive(self) -> bool:
        """True if it accepts requests: it runs, and is neither closed nor killed."""
        return not self._closed and self._started.alive

    @property
    def pid(self) -> int:
        """The process id of the worker, which is also its process group."""
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
        """Send one request, and return the fields of each line of the answer, without the final ``ok``.

        Args:
            lines: the request, as lines of fields.
            limit: clock seconds to wait for the answer.
            memory: bytes of private memory that the worker may use during the request. 0: no limit; ``None``: the
                user's limit, or the default share of the system memory.
            allowance: further limits of the request; ``None``: no further ones. Its CPU seconds are for this request.
                Its memory is the largest of all requests so far: a worker need not free memory between two models.
            where: the model, for errors.

        Raises:
            SessionFailure: the worker refused, died, or exceeded a limit. It has ended, except after a refusal without
                loss of the device. Any other exception, such as Ctrl-C, also ends the worker.
            UsageError: the user's memory limit is not valid.
        """
        if self._closed:
            raise failure("crash", f"{self.name} has ended", where)
        allowed = allowed_memory() if memory is None else MemoryLimit(memory)
        if allowance is not None:
            self._granted = max(self._granted, allowance.nbytes)
            allowance = replace(allowance, nbytes=self._granted)
        most = [n for n in (allowed.nbytes, allowance.nbytes if allowance is not None else 0) if n]
        self._started.job.limit_memory(int(min(most, default=0) * _HARD))
        watch = Watch(self._started, limit, allowed, allowance, files=(self._log,), written=_LOG)
        try:
            return self._asked(lines, watch, where)
        except SessionFailure:
            raise
        except BaseException:
            self.kill()  # the rest of the answer is not read
            raise

    def _asked(self, lines: Iterable[Sequence[str]], watch: Watch, where: str) -> list[list[str]]:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._mark = self._log.stat().st_size
        try:
            self._process.stdin.write(b"".join(encode(line) for line in lines))
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise self._died(where) from None
        answer: list[list[str]] = []
        size = 0
        look = time.monotonic() + _POLL
        while True:
            line = None
            with contextlib.suppress(queue.Empty):
                line = self._lines.get(timeout=max(0.0, min(look - time.monotonic(), watch.remaining)))
            if line is None or time.monotonic() >= look:
                # Processes that the worker left behind can hold the pipe open, so the end of the pipe is not a reliable
                # sign.
                if self._process.poll() is not None and self._lines.empty():
                    raise self._died(where)
                if over := watch.look():
                    raise self._over(over, where)
                look = time.monotonic() + _POLL
            if line is None:
                continue
            if not line:
                raise self._died(where)
            size += len(line)
            if size > _ANSWER or not line.endswith(b"\n"):
                raise self._ended("protocol", "sent an answer that is too long", where)
            fields = decode(line)
            if fields == ["ok"]:
                return answer
            if fields[0] == "fail" and len(fields) == 3:
                refusal = failure(_REFUSALS.get(fields[1], "protocol"), fields[2], where)
                if refusal.kind == "device-removed":
                    self.kill()  # this device cannot answer again; the next open starts a new worker
                raise refusal
            answer.append(fields)

    def _over(self, ending: Ending, where: str) -> SessionFailure:
        if not ending.fix:
            return self._ended(_KINDS[ending.kind], ending.words, where)
        self.kill()
        return SessionFailure("limit", f"{self.name} {ending.words}", where=where, next_step=ending.fix)

    def _ended(self, kind: FailureKind, why: str, where: str) -> SessionFailure:
        self.kill()
        return failure(kind, f"{self.name} {why}", where)

    def _died(self, where: str) -> SessionFailure:
        ending, tail = self._started.ending(), self._last_words()
        how = ending.words + (" (probably the system ran out of memory)" if ending.killed else "")
        how += f"; its last output: {tail}" if tail else ""
        return self._ended("memory" if out_of_memory(tail) else "crash", how, where)

    def _last_words(self) -> str:
        """Return the end of the worker's standard error since the last request, as plain text."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(self._mark, log.seek(0, os.SEEK_END) - _LAST))
                return plain_text(log.read())
        except OSError:
            return ""

    def kill(self) -> None:
        """End the worker and every process of its group immediately, and remove the exchange folder."""
        self._closed = True
        self._end()

    def close(self) -> None:
        """Let the worker end by itself, then make sure that it has ended. After Ctrl-C, end it immediately."""
        if self.alive and self._process.stdin is not None and not interrupted():
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(b"quit\n")
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_CLOSE_GRACE)
        self.kill()


def _close(holds: int | None) -> None:
    if holds is not None:
        os.close(holds)


def _end(started: Started, exchange: Path, holds: int | None) -> None:
    """End a worker, remove its exchange folder and close ``holds``; in a forked process, do nothing."""
    if started.parent != os.getpid():
        return  # this process was forked: the worker belongs to the parent
    started.end()
    remove_tree(exchange, ignore_errors=True)
    _close(holds)
