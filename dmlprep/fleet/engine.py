"""Engines run the tasks of a fleet, here or on other machines, and yield their events in any order."""

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
"""Seconds after which a wait looks up, so that Ctrl-C is heard on Windows."""

E = TypeVar("E")


@dataclass(frozen=True)
class Task:
    """One command line of dmlprep, without the program; it needs ``memory`` bytes (``needs.memory_needed``).

    Attributes:
        job: ``None`` for a task that is only a command line.
        facts: dependencies of the job (``keys.Keys.facts``), so that another machine can compare.
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
    """A line that a task wrote: a step is done."""

    name: str
    text: str


@dataclass(frozen=True)
class Ended:
    """A task has ended.

    Attributes:
        exit_code: code of the command; 3 if it was ended for its memory, or never ran.
        error: the reason, for people, if the job left no record; ``code`` is its finding code.
    """

    name: str
    exit_code: int
    error: str = ""
    seconds: float = 0.0
    code: str = ""


Event = Started | Progress | Ended


class Engine(Protocol):
    """Runs tasks. An engine is used by one thread."""

    @property
    def room(self) -> int:
        """The number of tasks that ``submit`` accepts now; below 1, call ``results`` first."""

    def submit(self, task: Task) -> None:
        """Run a task, when its turn comes."""

    def results(self, *, wait: bool | float) -> Iterator[Event]:
        """Yield what happened since; ``wait`` (or seconds at most) for the next event if a task has not ended."""

    def close(self) -> None:
        """End what still runs, with all that it began."""


def waited(events: queue.Queue[E], wait: bool | float, pending: Callable[[], bool]) -> Iterator[E]:
    """Yield the events of a queue; ``wait`` (or seconds at most) for the first while tasks are ``pending``."""
    until = math.inf if wait is True else time.monotonic() + wait
    while pending() and (remaining := until - time.monotonic()) > 0:
        with contextlib.suppress(queue.Empty):
            yield events.get(timeout=min(remaining, WAIT))
            break
    with contextlib.suppress(queue.Empty):
        while True:
            yield events.get_nowait()
