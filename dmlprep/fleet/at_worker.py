"""One job of a fleet on a worker of a cluster: the same process with the same limits as beside us."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlprep.errors import CheckNotRun, DmlprepError
from dmlprep.fleet.digests import Digests
from dmlprep.fleet.engine import Ended, Progress, Task
from dmlprep.fleet.keys import Keys
from dmlprep.fleet.local import LocalEngine
from dmlprep.fleet.needs import Room
from dmlprep.runtime.starting import allowed_memory

__all__ = ["Host", "run_task"]

_LOOK = 0.3
"""Seconds between two looks at whether the job is still wanted."""

_LOOKED_AT = Keys(Digests())
"""What jobs share is looked at once by a worker: files, versions, devices."""
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Host:
    """What a worker is to a job.

    Attributes:
        name: for messages.
        threads: jobs that it runs at once.
        memory: bytes for all of them; 0 where it says none.
        wanted: whether somebody still waits for the job.
        say: hands a line of the job on.
    """

    name: str
    threads: int
    memory: int
    wanted: Callable[[], bool]
    say: Callable[[str], None]


def run_task(task: Task, host: Host) -> Ended:
    """Run a job here, to its end.

    A job that is no longer wanted is ended with all that it began. What the job depends on must be here what it is
    where the fleet was started: else the result would be kept under a name that says something else.

    Returns:
        how it ended; exit code 3 where it cannot be run here.
    """
    if task.job is not None:
        wrong = _other(task, host)
        if wrong:
            return Ended(task.name, CheckNotRun.exit_code, wrong)
    engine = LocalEngine(Room(max(1, host.threads), host.memory or allowed_memory().nbytes))
    try:
        engine.submit(task)
        while host.wanted():
            for event in engine.results(wait=_LOOK):
                if isinstance(event, Ended):
                    return event
                if isinstance(event, Progress):
                    host.say(event.text)
    finally:
        engine.close()
    return Ended(task.name, CheckNotRun.exit_code, "the job was stopped")


def _other(task: Task, host: Host) -> str:
    """Why the job would be another one on this worker; empty where it is the same."""
    assert task.job is not None
    if not Path(task.job.model).is_file():
        return f"{host.name} has no {task.job.model} (workers and this machine must see the same folders)"
    try:
        with _LOCK:
            here = _LOOKED_AT.facts(task.job)
    except (DmlprepError, OSError) as error:
        return f"{host.name} cannot run the job: {error}"
    return _said(task.facts, here, host)


def _said(there: Mapping[str, Any], here: Mapping[str, Any], host: Host) -> str:
    parts = [name for name in here if here[name] != there.get(name)]
    if not parts:
        return ""
    named = {
        "here": "other versions of dmlprep, Python's packages or the system",
        "device": "another DirectML",
        "model": "another file under the model's name",
        "feeds": "other feeds",
        "metric": "another measure",
    }
    what = ", ".join(named.get(part, f"another {part}") for part in parts)
    return f"{host.name} has {what}: the job would not be the same there (install the same on all machines)"
