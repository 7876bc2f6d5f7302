"""Keep one process for onnx's compiled code: it starts once, answers many requests, and ends at a limit.

A request that crashes the process, or exceeds its time, memory or answer size, becomes a ``ToolFailed``. The next
request gets a new process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

from dmlprep.core.errors import CheckNotRun, InternalError, ToolFailed, UsageError
from dmlprep.portable.bounds import MOST_MEMORY_MIB, MOST_SECONDS
from dmlprep.portable.printable import shortened
from dmlprep.process.allowance import Allowance
from dmlprep.process.ending import Ending, out_of_memory
from dmlprep.process.onnx_worker.worker import BOUNDS, TooLarge, read_frame, write_frame
from dmlprep.process.starting import file_command
from dmlprep.process.starting import start as start_process
from dmlprep.process.watching import Watch
from dmlprep.record import CODES

_MIB = 1 << 20

_LOOK = 0.1
"""Seconds between two checks of a process during a request."""

_QUIET = 20
"""Number of checks without a request after which the checks pause until the next request."""

PATIENCE = 6
"""Ratio of the clock-time limit to the CPU-time limit of a request, because other programs may use the processor."""

_LINES, _LONGEST = 100, 1000
"""Limits for quoting a message of onnx: number of lines, and characters of a line."""

_LARGE = 32 * _MIB
"""Size of a request with its answer, in bytes, above which the process is ended, because it does not free its
memory."""

_OWN = 32 * _MIB
"""Memory in bytes that the process may use in addition to the limit of a request. Before the first request it has
some 20 MiB."""

_CACHE_BYTES = 16 * _MIB
"""Limit for the size of all cached requests and answers, in bytes. A request for a node has some 300 bytes."""


class OnnxError(Exception):
    """onnx refuses its input; the text is onnx's own message."""

    @property
    def line(self) -> str:
        """The first line of the message that is not empty."""
        return next((line.strip() for line in str(self).splitlines() if line.strip()), "no reason given")


def _readable(text: str) -> str:
    """Return the start of an onnx message: at most ``_LINES`` lines, each shortened to ``_LONGEST`` characters.

    For nested bodies, onnx repeats itself over megabytes.
    """
    lines = text.splitlines()[:_LINES] if len(text) > _LONGEST else [text]
    return "\n".join(shortened(line, _LONGEST) for line in lines)


@dataclass(frozen=True)
class Limits:
    """Limits of one request: CPU seconds, bytes of memory and bytes of the answer.

    ``for_request`` raises them by the size of the request.
    """

    seconds: float = 10.0
    memory: int = 1024 * _MIB
    answer: int = 64 * _MIB

    def for_request(self, size: int) -> Limits:
        """Return these limits, raised for a request of ``size`` bytes (the model without its weights).

        For each MiB of the request: one second, 32 MiB of memory, 16 MiB of answer.
        """
        return Limits(self.seconds + size / _MIB, self.memory + 32 * size, self.answer + 16 * size)


DEFAULT = Limits()

_STARTING = Limits(seconds=30.0)
"""The limits of the process until it is ready, whatever the limits of the request are."""

_limits: ContextVar[Limits] = ContextVar("limits", default=DEFAULT)


def other_limits(seconds: float | None, memory: int | None) -> Limits:
    """Return the current limits with another time in seconds or memory in bytes; ``None`` keeps the current one.

    The limit of the answer is at least a sixteenth of the new memory.
    """
    now = _limits.get()
    answer = max(now.answer, (memory or 0) // 16)
    return Limits(now.seconds if seconds is None else seconds, now.memory if memory is None else memory, answer)


@contextlib.contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Set other limits for the requests of a ``with`` block.

    Raises:
        UsageError: a limit is not positive, not finite, or larger than any machine allows.
    """
    for name, limit, most in (
        ("onnx_seconds", limits.seconds, MOST_SECONDS),
        ("onnx_bytes", limits.memory, MOST_MEMORY_MIB << 20),
        ("answer", limits.answer, MOST_MEMORY_MIB << 20),
    ):
        if not 0 < limit <= most:  # false for NaN
            raise UsageError(f"{limit!r} is not a limit", where=name, fix=f"a number above 0 and at most {most:g}")
    token = _limits.set(limits)
    try:
        yield
    finally:
        _limits.reset(token)


class _Ended(Exception):
    """The process ended without an answer."""


class _Process:
    """The worker process, and the thread that watches its requests."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile(prefix="dmlprep-")  # noqa: SIM115
        command = file_command(str(Path(__file__).with_name("worker.py")), library_of_onnx(), bare=True)
        try:
            self.started = start_process(command, (subprocess.PIPE, subprocess.PIPE, self._log.fileno()))
        except BaseException:
            self._log.close()
            raise
        self.process = self.started.process
        self.over: Ending | None = None
        self._ready = False
        self._watch: Watch | None = None  # for the current request
        self._memory = 0
        self._working = threading.Event()
        threading.Thread(target=self._look_after, name="dmlprep-watch", daemon=True).start()

    def ask(self, parts: Sequence[bytes], limits: Limits) -> list[bytes]:
        """Send a request and return the parts of the answer.

        Raises:
            CheckNotRun: the process did not start.
            TooLarge: the answer is larger than the limit.
            _Ended: the process ended before the answer.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if limits.memory != self._memory:
            self._memory = limits.memory
            self.started.job.limit_memory(limits.memory)
        try:
            if not self._ready:
                self._look_at(_STARTING)
                if read_frame(self.process.stdout, _LARGE) != [b"ready"]:
                    why = f"not ready within {_within(self.over)}" if self.over else self.last_words()
                    raise _not_started(why)
                self._ready = True
            self._look_at(limits)
            write_frame(self.process.stdin, parts, BOUNDS.pack(int(limits.seconds) + 1, limits.memory))
            answer = read_frame(self.process.stdout, limits.answer)
        except (OSError, ValueError, EOFError) as error:  # ValueError: a closed pipe
            raise _Ended from error
        finally:
            self._watch = None
        if not answer:
            raise _Ended
        return answer

    def _look_at(self, limits: Limits) -> None:
        allowed = Allowance(limits.memory + _OWN, limits.seconds)
        self._watch = Watch(self.started, seconds=limits.seconds * PATIENCE, allowance=allowed)
        self._working.set()

    def last_words(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            size = self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, size - 1000))
            text = self._log.read().decode(errors="replace")
            return " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return ""

    def _look_after(self) -> None:
        """End the process if a request exceeds its limits. This runs in a separate thread while there are requests."""
        quiet = 0
        while self.started.alive:
            self._working.wait()
            time.sleep(_LOOK)
            watch = self._watch
            quiet = 0 if watch is not None else quiet + 1
            if quiet > _QUIET:
                quiet = 0
                self._working.clear()
                if self._watch is not None:  # a request that began meanwhile relies on this thread
                    self._working.set()
            # On Windows the job's own memory limit should apply first, and on Linux the limit of address space.
            if watch is not None and (over := watch.look()) and self._watch is watch:
                self.over = over
                self.started.kill()

    def end(self) -> None:
        self.started.end()
        self._working.set()  # lets the watching thread end
        self._log.close()

    def let_go(self) -> None:
        """Close the copies of the pipes that a forked child has, without writing buffered data."""
        for pipe in (self.process.stdin, self.process.stdout, self._log):
            with contextlib.suppress(OSError, ValueError):
                if pipe is not None:
                    getattr(pipe, "raw", pipe).close()


def library_of_onnx() -> tuple[str, str]:
    """Return the path of onnx's extension module, and the folder that contains the package onnx.

    The path is empty if the module is missing; both are empty without onnx. onnx is not imported.
    """
    spec = find_spec("onnx")
    if spec is None or not spec.submodule_search_locations:
        return "", ""
    package = Path(spec.submodule_search_locations[0])
    files = (package / f"onnx_cpp2py_export{suffix}" for suffix in EXTENSION_SUFFIXES)
    return str(next((file for file in files if file.is_file()), "")), str(package.parent)


def _not_started(why: str) -> CheckNotRun:
    what = f"onnx's checker cannot run: its process did not start{f' ({why})' if why else ''}"
    return CheckNotRun(what, fix="check that Python can start processes, and that onnx is installed completely")


class Door:
    """The access of all threads to one worker process: it starts the process, and sends it one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.process: _Process | None = None
        self._answers: dict[tuple[bytes, ...], list[bytes]] = {}
        self._cached_bytes = 0
        self._closed = False

    def _started(self) -> _Process:
        if self.process is not None and not self.process.started.alive:
            self._end()
        if self.process is None:
            try:
                self.process = _Process()
            except OSError as error:
                raise _not_started(str(error)) from error
        return self.process

    def start(self) -> None:
        """Start the worker early, so that the first request need not wait. If it does not start, that request fails."""
        with self._lock, contextlib.suppress(CheckNotRun):  # the first request reports the error
            self._started()

    def ask(self, word: str, parts: Sequence[bytes]) -> list[bytes]:
        """Return the parts of the worker's result, and end the worker after a failure or a large request.

        Parts and errors are those of the function ``ask``. After a refusal by onnx, the worker stays alive.
        """
        size = sum(map(len, parts))
        limits = _limits.get().for_request(size)
        with self._lock:
            try:
                answer = self._asked(word, parts, limits)
            except BaseException:
                if self._closed or not threading.main_thread().is_alive():
                    self._wait_for_the_end()
                self._end()  # also after an interruption: the next request would read an unread answer
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
        """Block a thread forever, unless it is the main thread.

        Python is exiting, and no code handles the thread's error. The exit of Python ends the thread.
        """
        if threading.current_thread() is not threading.main_thread():
            threading.Event().wait()

    def ask_once(self, word: str, parts: Sequence[bytes]) -> list[bytes]:
        """Return the cached answer to a request, or ask the worker."""
        request = (word.encode(), *parts)
        answer = self._answers.get(request)
        if answer is None:
            answer = self.ask(word, parts)
            nbytes = sum(map(len, request)) + sum(map(len, answer))
            if nbytes > _CACHE_BYTES:
                return answer
            self._cached_bytes += nbytes
            if self._cached_bytes > _CACHE_BYTES:
                self._cached_bytes, self._answers = 0, {}
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
                ending, words = process.over or process.started.ending(), process.last_words()
                if ending.kind == "memory" or out_of_memory(words):
                    raise _out_of_memory(word, limits) from None
                if process.over:
                    raise _failed(word, f"did not finish on this model within {_within(ending)}", "DP013") from None
                if ending.killed and again:  # maybe by the system, for the memory of another program
                    again = False
                    self._end()
                    continue
                if ending == Ending("exit", 1):
                    what = f"the process of {_WHAT[word]} failed: {words}"
                    raise InternalError(what, fix="please report this") from None
                raise _failed(word, f"crashes on this model ({ending.cause})", "DP012") from None

    def _end(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.end()

    def end(self) -> None:
        """End the worker."""
        with self._lock:
            self._end()

    def at_exit(self) -> None:
        """End the process at the end of the program.

        A thread that still waits for an answer gets none, and blocks nothing.
        """
        self._closed = True
        if self._lock.acquire(blocking=False):
            self._end()
        elif (process := self.process) is not None:
            process.started.kill()

    def after_fork(self) -> None:
        """Reset a forked child: the process and the holder of the lock belong to the parent."""
        self._lock = threading.Lock()
        process, self.process = self.process, None
        if process is not None:
            process.let_go()


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


def _within(over: Ending) -> str:
    """Return the time limit of an ending in words, for a message: ``10 s of processor time``."""
    seconds = f"{over.limit:.1f}".removesuffix(".0") + " s"
    return f"{seconds} of processor time" if over.kind == "processor" else seconds


shared = Door()
atexit.register(shared.at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=shared.after_fork)


start, end = shared.start, shared.end
"""``start`` starts the process in advance, so that it is ready for the first request. ``end`` ends it; the next
request starts a new one."""


def ask(word: str, *parts: bytes) -> list[bytes]:
    """Send a request, and return the parts of the result.

    ``word`` is a key of ``worker.WORK``, and ``parts`` are the arguments of its function.

    Raises:
        OnnxError: onnx refuses.
        ToolFailed: DP012, onnx crashed; DP013, it exceeded the limits.
        CheckNotRun: the process does not start.
        InternalError: the process failed with a Python error, which is a bug of dmlprep.
    """
    return shared.ask(word, parts)


def ask_once(word: str, *parts: bytes) -> list[bytes]:
    """Send a request like ``ask``, or return the cached answer of an equal request.

    The answer must depend only on the request. A refusal or a failure is not cached.
    """
    return shared.ask_once(word, parts)
