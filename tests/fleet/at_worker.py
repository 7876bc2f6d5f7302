"""What a worker of a cluster does in tests: the stand-in of ``prepare``, in the worker's own process."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from dmlprep.fleet import Ended, Task
from dmlprep.fleet.at_worker import Host
from tests.fleet.standin import prepare


def run(task: Task, host: Host) -> Ended:
    """``kills``: the worker dies; ``waits``: it says which process it is, and waits for a file ``go``."""
    model = Path(task.arguments[-1])
    text = model.read_text()
    if "kills" in text:
        time.sleep(0.1)  # that it began is heard of
        os.kill(os.getpid(), signal.SIGKILL)
    if "waits" in text:
        host.say(f"pid {os.getpid()}")
        while not (model.parent / "go").exists() and host.wanted():
            time.sleep(0.05)
    code = prepare(task.arguments, host.say)
    return Ended(task.name, code, "" if code == 0 else "not good", 0.1)


def where(task: Task, host: Host) -> Ended:
    """Says what resources the task was given here."""
    from distributed import get_worker

    worker = get_worker()
    known = worker.state.tasks[worker.get_current_task()].resource_restrictions or {}
    return Ended(task.name, 0, " ".join(f"{name}={known[name]}" for name in sorted(known)), 0.1)
