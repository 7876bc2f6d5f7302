"""The one process that onnx's compiled code runs in: started once, asked many times, ended at a limit.

A request that crashes it, or that needs too much time, memory or answer, becomes a ``ToolFailed``; the next request
gets a new process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

from dmlprep.bounds import MOST_MEMORY_MIB, MOST_SECONDS
from dmlprep.compiled.worker import BOUNDS, TooLarge, read_frame, write_frame
from dmlprep.errors import CheckNotRun, InternalError, ToolFailed, UsageError
from dmlprep.files.run_folder import at_end
from dmlprep.processes import leash
from dmlprep.processes.process import CREATION_FLAGS, Job
from dmlprep.processes.spawning import spawn
from dmlprep.record import CODES
from dmlprep.record.printable import shortened

__all__ = ["DEFAULT", "PATIENCE", "Limits", "OnnxError", "ask", "ask_once", "end", "limited", "start"]

_MIB = 1 << 20

_LOOK = 0.1
"""Seconds between two looks at a process that works."""

_QUIET = 20
"""Looks without a request after which nobody looks until the next one."""

PATIENCE = 6
"""How much longer by the clock than by the processor a request may take: other programs may have the processor."""

_LINES, _LONGEST = 100, 1000
"""Lines, and characters of a line, of what onnx says that are quoted."""

_LARGE = 32 * _MIB
"""Bytes of request and answer after which the process ends: it does not give its memory back."""


_KEPT = 16 * _MIB
"""Bytes of requests and answers that are kept. A look at a node takes some 300."""


class OnnxError(Exception):
    """onnx refuses what it was given; the text is its own."""

    @property
    def line(self) -> str:
        """The first line of it that says something."""
        return next((line.strip() for line in str(self).splitlines() if line.strip()), "no reason given")


def _readable(text: str) -> str:
    """What onnx says of bodies within bodies repeats itself, over megabytes."""
    if len(text) <= _LONGEST:
        return text
    return "\n".join(shortened(line, _LONGEST) for line in text.splitlines()[:_LINES])


@dataclass(frozen=True)
class Limits:
    """What one request may take.

    Large models may take more: with each MiB of the model without its weights, a second and 32 MiB.

    Attributes:
        seconds: of processor time.
        memory: bytes.
        answer: bytes of what comes back.
    """

    seconds: float = 10.0
    memory: int = 1024 * _MIB
    answer: int = 64 * _MIB

    def for_request(self, size: int) -> Limits:
        """The limits of a request of ``size`` bytes."""
        return Limits(self.seconds + size / _MIB, self.memory + 32 * size, self.answer + 16 * size)


DEFAULT = Limits()

_STARTING = Limits(seconds=30.0)
"""What the process may take until it is ready, whatever a request may take."""

_limits: ContextVar[Limits] = ContextVar("limits", default=DEFAULT)


def other_limits(seconds: float | None, memory: int | None) -> Limits:
    """The limits in force with another time or memory; an answer may have at least a sixteenth of the memory."""
    now = _limits.get()
    answer = max(now.answer, (memory or 0) // 16)
    return Limits(now.seconds if seconds is None else seconds, now.memory if memory is None else memory, answer)


@contextlib.contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Other limits for the requests of a block.

    Raises:
        UsageError: a number is no limit: not positive, not finite, or more than any machine has.
    """
    for name, given, most in (
        ("onnx_seconds", limits.seconds, MOST_SECONDS),
        ("onnx_bytes", limits.memory, MOST_MEMORY_MIB << 20),
        ("answer", limits.answer, MOST_MEMORY_MIB << 20),
    ):
        if not 0 < given <= most:  # NaN is neither
            raise UsageError(f"{given!r} is no limit", where=name, fix=f"a number above 0, and at most {most:g}")
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)


class _Ended(Exception):
    """The process is gone without an answer."""


class _Process:
    """The process, and the thread that looks after its requests."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile(prefix="dmlprep-")  # noqa: SIM115
        self._job = Job()
        self._ended = False
        library, folder = _library()
        worker = str(Path(__file__).with_name("worker.py"))
        # -I -S: nothing of the user's, and no packages.
        leashed = [leash.__file__, str(os.getpid()), "-f"] if sys.platform.startswith("linux") else []
        command = [sys.executable, "-I", "-S", *leashed, worker, library, folder]
        try:
            self._process = spawn(lambda: self._start(command))
        except BaseException:
            self._log.close()
            self._job.end()
            raise
        self.over = ""
        self.full = False
        self._ready = False
        self._limits: Limits | None = None  # those of the request that it works on
        self._number = self._memory = 0
        self._working = threading.Event()
        threading.Thread(target=self._look_after, name="dmlprep-watch", daemon=True).start()

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            creationflags=CREATION_FLAGS,
        )
        self._job.add(process)
        # Here and not by the caller, who may be interrupted while he waits. A signal ends it at once.
        self._forget = at_end(partial(self._killed, process))
        return process

    @property
    def alive(self) -> bool:
        return not self._ended and self._process.poll() is None

    def _killed(self, process: subprocess.Popen[bytes]) -> None:
        self._ended = True  # at once: the system may take a moment
        _end(process, self._job)

    def ask(self, parts: Sequence[bytes], limits: Limits) -> list[bytes]:
        """The answer to a request.

        Raises:
            CheckNotRun: the process did not come to life.
            TooLarge: the answer is larger than the limit.
            _Ended: it ended before the answer; ``over`` says which limit of time ended it, and ``full`` whether the
                limit of memory did.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if limits.memory != self._memory:
            self._memory = limits.memory
            self._job.limit_memory(limits.memory)
        try:
            if not self._ready:
                self._watch(_STARTING)
                if read_frame(self._process.stdout, _LARGE) != [b"ready"]:
                    raise _not_started(f"it was not ready within {self.over}" if self.over else self._last_words())
                self._ready = True
            self._watch(limits)
            write_frame(self._process.stdin, parts, BOUNDS.pack(int(limits.seconds) + 1, limits.memory))
            answer = read_frame(self._process.stdout, limits.answer)
        except (OSError, ValueError, EOFError) as error:  # ValueError: a pipe that was closed
            raise _Ended from error
        finally:
            self._limits = None
        if not answer:
            raise _Ended
        return answer

    def _watch(self, limits: Limits) -> None:
        self._number += 1
        self._limits = limits
        if not self._working.is_set():
            self._working.set()

    def how(self) -> tuple[int | None, str]:
        """Exit code of the ended process, and its last words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        return self._process.poll(), self._last_words()

    def _last_words(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            size = self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, size - 1000))
            text = self._log.read().decode(errors="replace")
            return " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return ""

    def _look_after(self) -> None:
        """End the process where a request is over its limits. Runs in a thread of its own while requests come."""
        quiet, seen = 0, 0
        began, before = 0.0, 0.0
        while self.alive:
            self._working.wait()
            time.sleep(_LOOK)
            limits = self._limits
            if limits is None:
                quiet += 1
                if quiet > _QUIET:
                    quiet = 0
                    self._working.clear()
                    if self._limits is not None:  # a request that began meanwhile took itself for watched
                        self._working.set()
                continue
            quiet = 0
            if self._number != seen:
                seen, began, before = self._number, time.monotonic(), self._cpu_seconds()
                continue
            used, waited = self._cpu_seconds() - before, time.monotonic() - began
            if used > limits.seconds:
                self._stop(f"{_seconds(limits.seconds)} of processor time")
            elif waited > limits.seconds * PATIENCE:
                self._stop(_seconds(limits.seconds * PATIENCE))
            elif self._job.private_bytes() > limits.memory:  # the job's own limit should not let it come to that
                self.full = True
                self.kill()

    def _stop(self, over: str) -> None:
        self.over = over
        self.kill()

    def kill(self) -> None:
        """End the process without waiting for that."""
        self._killed(self._process)

    def _cpu_seconds(self) -> float:
        """Seconds of processor time so far; 0 where the system does not say."""
        if not sys.platform.startswith("linux"):
            return self._job.cpu_seconds()
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii", errors="replace")
            return sum(map(int, stat.rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def end(self) -> None:
        """End the process."""
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10.0)
        self._forget()
        self._working.set()  # lets the watch end
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError, ValueError):
                if pipe is not None:
                    pipe.close()

    def let_go(self) -> None:
        """In a forked child: close its copies of the pipes, and write nothing that stands in a buffer."""
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError, ValueError):
                if pipe is not None:
                    getattr(pipe, "raw", pipe).close()


def _end(process: subprocess.Popen[bytes], job: Job) -> None:
    job.end()
    with contextlib.suppress(OSError):
        process.kill()


def _library() -> tuple[str, str]:
    """onnx's extension module, empty where it is not found, and the folder that holds onnx; onnx is not imported."""
    spec = find_spec("onnx")
    if spec is None or not spec.submodule_search_locations:
        return "", ""
    package = Path(spec.submodule_search_locations[0])
    files = (package / f"onnx_cpp2py_export{suffix}" for suffix in EXTENSION_SUFFIXES)
    return str(next((file for file in files if file.is_file()), "")), str(package.parent)


def _not_started(why: str) -> CheckNotRun:
    return CheckNotRun(
        f"onnx's checker cannot run: its process did not start{f' ({why})' if why else ''}",
        fix="see that Python can start processes here, and that onnx is installed whole",
    )


class _Door:
    """Keeps the process; one request at a time, whatever thread it comes from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._answers: dict[tuple[bytes, ...], list[bytes]] = {}
        self._kept = 0
        self._closed = False

    def _started(self) -> _Process:
        if self._process is not None and not self._process.alive:
            self._end()
        if self._process is None:
            try:
                self._process = _Process()
            except OSError as error:
                raise _not_started(str(error)) from error
        return self._process

    def start(self) -> None:
        with self._lock, contextlib.suppress(CheckNotRun):  # the first request says so
            self._started()

    def ask(self, word: str, parts: Sequence[bytes]) -> list[bytes]:
        size = sum(map(len, parts))
        limits = _limits.get().for_request(size)
        with self._lock:
            try:
                answer = self._asked(word, parts, limits)
            except BaseException:
                if self._closed or not threading.main_thread().is_alive():
                    self._wait_for_the_end()
                self._end()  # also where the caller is interrupted: an answer that nobody read would be the next one's
                raise
            if answer[0] == b"memory" or size + sum(map(len, answer)) > _LARGE:
                self._end()
        if answer[0] == b"memory":
            raise _out_of_memory(word, limits)
        if answer[0] == b"no":
            raise OnnxError(_readable(answer[1].decode(errors="replace")))
        return answer[1:]

    @staticmethod
    def _wait_for_the_end() -> None:
        """In a daemon thread while Python ends, which ends it soon: nobody is there to hear of an error."""
        if threading.current_thread() is not threading.main_thread():
            threading.Event().wait()

    def ask_once(self, word: str, parts: Sequence[bytes]) -> list[bytes]:
        request = (word.encode(), *parts)
        answer = self._answers.get(request)
        if answer is None:
            answer = self.ask(word, parts)
            self._kept += sum(map(len, request)) + sum(map(len, answer))
            if self._kept > _KEPT:
                self._kept, self._answers = 0, {}
            self._answers[request] = answer
        return answer

    def _asked(self, word: str, parts: Sequence[bytes], limits: Limits) -> list[bytes]:
        again = True
        while True:
            process = self._started()
            try:
                return process.ask([word.encode(), *parts], limits)
            except TooLarge:
                what = f"makes more than {limits.answer // _MIB} MiB of this model"
                raise _failed(word, what, "DP013") from None
            except _Ended:
                code, words = process.how()
                if process.over:
                    raise _failed(word, f"came to no end on this model within {process.over}", "DP013") from None
                if process.full or "bad_alloc" in words or "MemoryError" in words:
                    raise _out_of_memory(word, limits) from None
                if code == -_SIGKILL and again:  # from outside, maybe for the memory of another program
                    again = False
                    self._end()
                    continue
                if code == 1:
                    raise InternalError(
                        f"the process of {_WHAT[word]} failed: {words}", fix="please report this"
                    ) from None
                raise _failed(word, f"crashes on this model ({_exit(code)})", "DP012") from None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def end(self) -> None:
        with self._lock:
            self._end()

    def at_exit(self) -> None:
        """The program ends: a thread that still waits for an answer holds nothing up, and gets none."""
        self._closed = True
        free = self._lock.acquire(blocking=False)
        if free:
            self._end()
        elif (process := self._process) is not None:
            process.kill()

    def after_fork(self) -> None:
        """In a forked child: the process belongs to the parent, and so does whoever holds the lock."""
        self._lock = threading.Lock()
        process, self._process = self._process, None
        if process is not None:
            process.let_go()


_SIGKILL = 9

_WHAT = {
    "check": "onnx's checker",
    "infer": "onnx's shape inference",
    "node": "onnx's shape inference",
    "convert": "onnx's version converter",
    "inline": "onnx's inliner",
    "body": "onnx's builder of function bodies",
}


def _failed(word: str, what: str, code: str) -> ToolFailed:
    return ToolFailed(f"{_WHAT[word]} {what}", code=code, fix=CODES[code].remedy)


def _out_of_memory(word: str, limits: Limits) -> ToolFailed:
    return _failed(word, f"needs more than {limits.memory // _MIB} MiB of memory for this model", "DP013")


def _exit(code: int | None) -> str:
    """How the process ended, in words."""
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
        return f"signal {-code}"
    if code is not None and code > 0x80000000:
        return f"{code:08X}"  # a Windows exception code, such as C0000005
    return f"exit code {code}"


def _seconds(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0") + " s"


_door = _Door()
atexit.register(_door.at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_door.after_fork)


def start() -> None:
    """Start the process, where it does not run, so that it is ready when it is asked."""
    _door.start()


def end() -> None:
    """End the process; the next request starts another."""
    _door.end()


def ask(word: str, *parts: bytes) -> list[bytes]:
    """Ask the process.

    Args:
        word: one of ``worker.WORK``.
        parts: what its function takes.

    Returns:
        what its function gives.

    Raises:
        OnnxError: onnx refuses.
        ToolFailed: DP012, onnx crashed; DP013, it needed more than the limits.
        CheckNotRun: the process does not start.
    """
    return _door.ask(word, parts)


def ask_once(word: str, *parts: bytes) -> list[bytes]:
    """``ask``, where the answer follows from the request alone: it may be that of the same request before.

    A refusal or a failure is not kept.
    """
    return _door.ask_once(word, parts)
