"""The interface of engines, which run the tasks of a fleet on this or other machines and yield events about them."""

from __future__ import annotations

import contextlib
import math
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from dmlprep.fleet.matrix import Job

WAIT = 0.2
"""The most seconds of one wait; longer waits are repeated, so that Ctrl-C works on Windows."""

E = TypeVar("E")


@dataclass(frozen=True)
class Task:
    """One command line of dmlprep to run.

    Attributes:
        arguments: the command line without the program.
        memory: bytes of memory that it needs (``needs.memory_needed``).
        job: the job that it runs; ``None`` for a task that is only a command line.
        facts: everything that the job depends on (``keys.Keys.facts``), so that another machine can compare.
    """

    name: str
    arguments: tuple[str, ...]
    memory: int = 0
    job: Job | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Started:
    """A task has begun."""

    name: str


@dataclass(frozen=True)
class Progress:
    """A task wrote a line to standard error, for example when a step is done."""

    name: str
    text: str


@dataclass(frozen=True)
class Ended:
    """A task has ended.

    Attributes:
        exit_code: exit code of the command. Without one: 3 if the task was killed or no worker can run it, 70 if it
            crashed or could not be started.
        error: the reason as text, used if the task left no record; ``code`` is its finding code.
    """

    name: str
    exit_code: int
    error: str = ""
    seconds: float = 0.0
    code: str = ""


Event = Started | Progress | Ended


class Engine(Protocol):
    """Runs tasks in parallel, and yields events about them in any order. Only one thread may use an engine."""

    @property
    def room(self) -> int:
        """The number of tasks that ``submit`` accepts now; below 1, call ``results`` first."""

    def submit(self, task: Task) -> None:
        """Add a task; the call returns without waiting for it."""

    def results(self, *, wait: bool | float) -> Iterator[Event]:
        """Yield the events since the last call.

        ``wait``: True waits for the next event if there is none and a task has not ended; a number waits at most so
        many seconds; False does not wait.
        """

    def close(self) -> None:
        """Kill all running tasks with their child processes, and drop the waiting ones."""


def waited(events: queue.Queue[E], wait: bool | float, pending: Callable[[], bool]) -> Iterator[E]:
    """Yield the events in a queue until it is empty.

    ``wait``: True waits for the first event as long as ``pending()`` is true; a number waits at most so many seconds;
    False does not wait.
    """
    until = math.inf if wait is True else time.monotonic() + wait
    while pending() and (remaining := until - time.monotonic()) > 0:
        with contextlib.suppress(queue.Empty):
            yield events.get(timeout=min(remaining, WAIT))
            break
    with contextlib.suppress(queue.Empty):
        while True:
            yield events.get_nowait()
