"""Run one job of a fleet on a worker of a Dask cluster: in the same kind of process, with the same limits.

A worker is a process of Dask; the submitting machine is the one on which ``dmlprep fleet`` runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dmlprep.core.errors import CheckNotRun, DmlprepError
from dmlprep.fleet.digests import Digests
from dmlprep.fleet.engine import Ended, Progress, Task
from dmlprep.fleet.keys import Keys, key_of
from dmlprep.fleet.local import LocalEngine
from dmlprep.fleet.needs import Room
from dmlprep.fleet.places import Place
from dmlprep.process.starting import allowed_memory

_LOOK = 0.1
"""Seconds between two checks of whether the fleet still waits for the job."""

_APPEARS = 5.0
"""The most seconds to wait until files of the submitting machine are visible: network file systems cache look-ups."""


@dataclass(frozen=True)
class Host:
    """The worker that runs a job: up to ``threads`` jobs at a time, in ``memory`` bytes together (0 if unknown).

    ``wanted`` returns True while the fleet waits for the job; ``say`` sends a line of the job's output to the fleet.
    """

    name: str
    threads: int
    memory: int
    wanted: Callable[[], bool]
    say: Callable[[str], None]


def run_task(task: Task, host: Host) -> Ended:
    """Run a job on this worker to its end, and return how it ended; wait first until there is memory for it.

    If the fleet no longer waits for the job, its processes are killed. Everything that the job depends on must be the
    same as on the submitting machine. Otherwise the job does not run and ends with exit code 3: its result would be
    stored under a wrong key.
    """
    if task.job is not None and (wrong := _other(task, host)):
        return Ended(task.name, CheckNotRun.exit_code, f"{host.name} {wrong}")
    memory = host.memory or allowed_memory().nbytes
    with _gate(host.name, memory).held(task.memory, host.wanted) as let_in:
        if let_in:
            room = Room(max(1, host.threads), memory)
            engine = LocalEngine(room, remedy="use fewer worker threads")
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


class Gate:
    """Lets jobs run as long as there is memory for all of them; 0 bytes mean no limit. A single job may always run."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._held: list[int] = []
        self._change = threading.Condition()

    @contextmanager
    def held(self, nbytes: int, wanted: Callable[[], bool]) -> Iterator[bool]:
        """Wait until ``nbytes`` of memory are free, and reserve them during the ``with`` block.

        Yield True, or False if ``wanted`` returned False before there was room.
        """
        if not (let_in := self._enter(nbytes, wanted)):
            yield False
            return
        try:
            yield let_in
        finally:
            with self._change:
                self._held.remove(nbytes)
                self._change.notify_all()

    def _enter(self, nbytes: int, wanted: Callable[[], bool]) -> bool:
        with self._change:
            while self._held and self._memory and sum(self._held) + nbytes > self._memory:
                if not wanted():
                    return False
                self._change.wait(_LOOK)
            self._held.append(nbytes)
            return True


@cache
def _gate(_worker: str, memory: int) -> Gate:
    # By the worker: a process may hold several.
    return Gate(memory)


@cache
def _keys() -> tuple[Keys, threading.Lock]:
    """Return this process's ``Keys``, and the lock that a thread must hold to use them."""
    return Keys(Digests()), threading.Lock()


def other_versions(there: Sequence[Any]) -> str:
    """Describe how versions, system or processor differ from those of the submitting machine; empty if they do not.

    ``there`` is ``Keys.here`` of the submitting machine.
    """
    here = _keys()[0].here
    if list(there) == here:
        return ""
    theirs, ours = dict(there[3]), dict(here[3])
    differ = [
        f"{name} {ours.get(name, 'missing')} for {theirs.get(name, 'none')}"
        for name in sorted({*theirs, *ours})
        if theirs.get(name) != ours.get(name)
    ]
    differ += [f"{mine} for {other}" for mine, other in zip(here[1:3], there[1:3], strict=True) if mine != other]
    what = ", ".join(differ) or f"other code of dmlprep {ours.get('dmlprep', '')}"
    fix = "use the same versions, system and processor type on all machines"
    return f"has other versions or another system ({what}), which might change results; {fix}"


def _other(task: Task, host: Host) -> str:
    """Describe why the job might give another result on this worker, or cannot run; empty if all is the same."""
    assert task.job is not None
    if not Path(task.job.model).is_file():
        return f"has no file {task.job.model}: workers and the submitting machine must share the folders"
    try:
        keys, lock = _keys()
        with lock:
            here = keys.facts(task.job)
    except (DmlprepError, OSError) as error:
        return f"cannot run the job: {error}"
    if list(task.facts.get("here", ())) != here["here"]:
        return other_versions(task.facts["here"])
    if wrong := _differ(task.facts, here):
        return wrong
    folder = Path(task.arguments[task.arguments.index("-o") + 1])
    if _begun(folder, key_of(here), host):
        return ""
    return f"does not see the fleet's files in {folder}: all machines must share the output folder"


def _differ(there: Mapping[str, object], here: Mapping[str, object]) -> str:
    named = {
        "device": "another DirectML (or has none)",
        "model": "another file under the model's name",
        "feeds": "other feeds",
        "metric": "another measure",
    }
    parts = [named.get(name, f"another {name}") for name in here if here[name] != there.get(name)]
    return f"has {', '.join(parts)} than the submitting machine" if parts else ""


def _begun(folder: Path, key: str, host: Host) -> bool:
    """Return True if this worker can read the ``job.json`` that the submitting machine wrote for this job.

    It waits for the file for up to ``_APPEARS`` seconds.
    """
    end = time.monotonic() + _APPEARS
    while True:
        state = Place(folder, Path()).state()
        if state is not None and state.key == key:
            return True
        if time.monotonic() > end or not host.wanted():
            return False
        time.sleep(_LOOK)
