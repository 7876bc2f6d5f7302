"""Run jobs as processes of this machine, as many in parallel as its memory and processors allow."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from dmlprep.core.errors import CheckNotRun, InternalError
from dmlprep.core.files.run_folder import sweep
from dmlprep.fleet.engine import Ended, Event, Progress, Started, Task, waited
from dmlprep.fleet.needs import Room
from dmlprep.portable.limits import VARIABLE, MemoryLimit
from dmlprep.process.starting import Started as Process
from dmlprep.process.starting import module_command, start
from dmlprep.process.watching import Watch

_LOOK = 0.5
"""Seconds between two checks of a job's memory."""

_LINES, _LONGEST = 3, 4000
"""How many of a job's last lines its error shows if the job left no record, and the most bytes of a line."""

_LEAVE = 5.0
"""The most seconds to wait until killed jobs have ended."""

_AHEAD = 2
"""The most tasks that the engine accepts at a time, for each job that may run in parallel."""


class LocalEngine:
    """An ``Engine`` that runs each task as a process of this machine, with a memory limit.

    A task that does not fit next to the running ones waits until enough of them have ended.

    Args:
        room: the most jobs at a time, and their memory together.
        command: makes the command line of a process from the task's arguments; by default dmlprep's own.
        remedy: how to leave more memory for a job, for the error text if several jobs may run at a time.
    """

    def __init__(
        self,
        room: Room,
        command: Callable[[tuple[str, ...]], list[str]] | None = None,
        *,
        remedy: str = "use fewer --jobs",
    ) -> None:
        self._space = room
        self._remedy = remedy if room.jobs > 1 else "use a machine with more memory"
        self._command = command or (lambda arguments: module_command("dmlprep", arguments))
        self._waiting: deque[Task] = deque()
        self._running: dict[str, Task] = {}
        self._processes: dict[str, Process] = {}
        self._threads: list[threading.Thread] = []
        self._events: queue.Queue[Event] = queue.Queue()
        self._unheard = 0
        self._lock = threading.Lock()
        self._closed = False

    @property
    def room(self) -> int:
        """The number of tasks that ``submit`` accepts now."""
        with self._lock:
            return _AHEAD * self._space.jobs - len(self._waiting) - len(self._running)

    def submit(self, task: Task) -> None:
        """Queue a task, and start it if there is room."""
        self._unheard += 1
        with self._lock:
            self._waiting.append(task)
        self._dispatch()

    def results(self, *, wait: bool | float) -> Iterator[Event]:
        """Yield the new events of the processes."""
        for event in waited(self._events, wait, lambda: self._unheard > 0):
            self._unheard -= isinstance(event, Ended)
            yield event

    def close(self) -> None:
        """Drop the queued tasks, kill the running processes, and remove their temporary files."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            running = [*self._processes.values()]
        for process in running:
            process.kill()
        deadline = time.monotonic() + _LEAVE
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if running:
            sweep()  # their temporary files

    def _dispatch(self) -> None:
        """Start the waiting tasks that fit now, in order; a smaller task may overtake a task that is too large."""
        with self._lock:
            for task in [*self._waiting]:
                if self._closed or not self._fits(task):
                    continue
                self._waiting.remove(task)
                self._running[task.name] = task
                thread = threading.Thread(target=self._run, args=(task,), name=f"dmlprep-job-{task.name}", daemon=True)
                self._threads = [one for one in self._threads if one.is_alive()] + [thread]
                thread.start()

    def _fits(self, task: Task) -> bool:
        if not self._running:
            return True  # at any size: it will not need less later
        held = sum(one.memory for one in self._running.values())
        enough = not self._space.memory or held + task.memory <= self._space.memory
        return enough and len(self._running) < self._space.jobs

    def _run(self, task: Task) -> None:
        began = time.monotonic()
        self._events.put(Started(task.name))
        try:
            code, error = self._process(task)
        except Exception as wrong:  # any error becomes a result, and the fleet continues
            code, error = InternalError.exit_code, f"the job cannot be started: {wrong}"
        with self._lock:
            self._running.pop(task.name)
            self._processes.pop(task.name, None)
        self._events.put(Ended(task.name, code, error, round(time.monotonic() - began, 3)))
        self._dispatch()

    def _process(self, task: Task) -> tuple[int, str]:
        limit = MemoryLimit(self._space.limit(task.memory), "the share of one job of this fleet")
        variables = {"PYTHONIOENCODING": "utf-8"}
        if limit.nbytes:
            variables[VARIABLE] = f"{max(1, limit.nbytes >> 20)}M"
        process = start(
            self._command(task.arguments),
            (subprocess.DEVNULL, subprocess.DEVNULL, subprocess.PIPE),
            # The same folder as dmlprep's own, so that ``sweep`` can find its remains.
            temporary=Path(tempfile.gettempdir()),
            variables=variables,
        )
        with self._lock:
            self._processes[task.name] = process
            closed = self._closed
        if closed:
            process.kill()
        lines: deque[str] = deque(maxlen=_LINES)
        reader = threading.Thread(target=self._read, args=(task.name, process, lines), daemon=True)
        reader.start()
        try:
            return self._watch(process, limit, reader, lines)
        finally:
            process.end()

    def _watch(
        self, process: Process, limit: MemoryLimit, reader: threading.Thread, lines: deque[str]
    ) -> tuple[int, str]:
        ending = Watch(process, memory=limit).wait(_LOOK)
        if ending.kind == "memory":
            return CheckNotRun.exit_code, f"the job {ending.words} ({self._remedy})"
        reader.join(_LOOK)  # a process that it left running may still hold the pipe
        message = " ".join(line.strip() for line in lines)
        if ending.kind == "exit" and ending.code in (0, 1, 2, 3, 70):
            return ending.code, message if ending.code else ""
        if ending.killed:  # from outside
            what = f"the job {ending.words}: the system probably ran out of memory ({self._remedy})"
            return CheckNotRun.exit_code, what
        return InternalError.exit_code, f"the job {ending.words}{f': {message}' if message else ''}"

    def _read(self, name: str, process: Process, lines: deque[str]) -> None:
        stream = process.process.stderr
        assert stream is not None
        with contextlib.suppress(OSError, ValueError), stream:
            while raw := stream.readline(_LONGEST):
                line = raw.decode("utf-8", "replace").rstrip()
                lines.append(line)
                if line and not self._closed:
                    self._events.put(Progress(name, line))
