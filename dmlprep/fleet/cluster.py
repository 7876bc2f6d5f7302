"""Jobs on the workers of a Dask cluster. The only place that imports ``distributed``."""

from __future__ import annotations

import contextlib
import logging
import queue
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from dmlprep.errors import CheckNotRun, InternalError, UsageError
from dmlprep.fleet.at_worker import Host, run_task
from dmlprep.fleet.engine import Ended, Event, Progress, Started, Task

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["ClusterEngine"]

_CONNECT = 15.0
"""Seconds for the scheduler to answer, and again for it to have a worker."""

_AHEAD = 3
"""Jobs for each thread of all workers that are handed over before their turn."""

_RECOUNT = 10.0
"""Seconds after which the workers are counted anew."""

_WAIT = 0.2
"""Seconds after which a wait looks up, so that Ctrl-C is heard on Windows."""

_LEAVE = 2.0
"""Seconds for the scheduler to be told that jobs are not wanted any more."""

_DML, _MEMORY = "dml", "memory"
"""Resources that workers may declare: DirectML jobs at once, and bytes for all jobs."""

Run = Callable[[Task, Host], Ended]


class ClusterEngine:
    """Hands each task to a worker of a cluster, which runs it in a process with a limit of memory.

    A job whose worker is lost runs elsewhere, as often as the scheduler allows (``allowed-failures``, 3); one that is
    refused is not run again: its exit code is a result.

    Args:
        address: of the scheduler, such as ``tcp://10.0.0.1:8786`` or ``tls://...``, or the ``.json`` file that it
            wrote.
        run: what a worker does; importable there.

    Raises:
        UsageError: ``distributed`` is not installed.
        CheckNotRun: no scheduler answers, or it has no worker.
    """

    def __init__(self, address: str, run: Run = run_task) -> None:
        try:
            import distributed
        except ImportError as error:
            what = f"a cluster needs the package distributed: {error}"
            raise UsageError(what, fix='pip install "dmlprep[dask]"') from error
        self._distributed = distributed
        self._run = run
        self._topic = f"dmlprep-{uuid.uuid4().hex}"
        self._events: queue.Queue[Event] = queue.Queue()
        self._futures: dict[str, Future] = {}
        self._started: set[str] = set()
        self._threads, self._counted = 0, -_RECOUNT
        self._declared: dict[str, float] = {}
        self._client = self._connect(address)
        self._client.subscribe_topic(self._topic, self._hear)

    def _connect(self, address: str) -> Client:
        # What it logs of a connection that fails is said below, in a line.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        fix = "start one (dask scheduler), or give its address as it prints it"
        try:
            where = {"scheduler_file": address} if address.endswith(".json") else {"address": address}
            client = self._distributed.Client(**where, timeout=_CONNECT, set_as_default=False, name="dmlprep")
        except (OSError, ValueError, TypeError) as error:  # TypeError, ValueError: an address that is none
            what = f"no Dask scheduler answers: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
            raise CheckNotRun(what, where=address, fix=fix) from error
        try:
            client.wait_for_workers(1, timeout=_CONNECT)
        except (OSError, self._distributed.TimeoutError) as error:
            client.close(_LEAVE)
            what = f"the cluster has no worker after {_CONNECT:.0f} s"
            raise CheckNotRun(what, where=address, fix=f"start some: dask worker {address}") from error
        return client

    @property
    def room(self) -> int:
        return _AHEAD * max(1, self._count()) - len(self._futures)

    def _count(self) -> int:
        """Threads of all workers, now and then asked for: workers come and go."""
        if time.monotonic() - self._counted > _RECOUNT:
            with contextlib.suppress(OSError):
                info = self._client.scheduler_info(n_workers=-1)
                workers = info["workers"].values()
                self._threads = sum(one["nthreads"] for one in workers)
                self._declared = {}
                for one in workers:
                    for name, most in one.get("resources", {}).items():
                        self._declared[name] = max(most, self._declared.get(name, 0.0))
            self._counted = time.monotonic()
        return self._threads

    def submit(self, task: Task) -> None:
        self._count()
        future = self._client.submit(
            partial(_at_worker, self._run, self._topic),
            task,
            key=f"{self._topic}-{task.name}",
            pure=False,
            retries=0,
            resources=self._asked(task) or None,
        )
        self._futures[task.name] = future
        future.add_done_callback(partial(self._ended, task.name))

    def _asked(self, task: Task) -> dict[str, float]:
        """Of what workers declare, what this job takes: never more than one of them has."""
        asked: dict[str, float] = {}
        on_dml = task.job is not None and task.job.given.get("device") != "cpu"
        if on_dml and self._declared.get(_DML):
            asked[_DML] = 1
        if self._declared.get(_MEMORY):
            asked[_MEMORY] = min(float(task.memory), self._declared[_MEMORY])
        return asked

    def results(self, *, wait: bool | float) -> Iterator[Event]:
        while wait and self._futures:
            with contextlib.suppress(queue.Empty):
                yield from self._heard(self._events.get(timeout=_WAIT))
                break
            if wait is not True:
                break
        with contextlib.suppress(queue.Empty):
            while True:
                yield from self._heard(self._events.get_nowait())

    def _heard(self, event: Event) -> Iterator[Event]:
        if event.name not in self._futures:
            return  # a line that comes after the end
        if isinstance(event, Ended):
            self._futures.pop(event.name).release()
        elif isinstance(event, Started):
            if event.name in self._started:
                event = Progress(event.name, "its worker was lost: begun again on another one")
            self._started.add(event.name)
        yield event

    def _hear(self, said: tuple[float, Any]) -> None:
        """An event of a worker, in Dask's own thread."""
        _, (name, text) = said
        self._events.put(Started(name) if text is None else Progress(name, text))

    def _ended(self, name: str, future: Future) -> None:
        """A task has come to its end, in a thread of Dask's."""
        if future.status == "finished":
            found = future.result()
            self._events.put(found)
            return
        code = CheckNotRun.exit_code
        if future.status == "cancelled":
            self._events.put(Ended(name, code, "the scheduler is gone, or has forgotten the job"))
            return
        error = future.exception()
        if isinstance(error, self._distributed.KilledWorker):
            times = error.allowed_failures + 1
            text = f"{times} workers were lost while they ran this job, the last one {error.last_worker.address}"
            what = f"{text}: it is not tried again (their logs say why; memory is the usual reason)"
        elif isinstance(error, ImportError):
            what = f"a worker has no dmlprep: {error} (install the same version on all workers)"
        else:
            code, what = InternalError.exit_code, f"the worker failed: {type(error).__name__}: {error}"
        self._events.put(Ended(name, code, what))

    def close(self) -> None:
        with contextlib.suppress(Exception):  # the scheduler may be what is gone
            if self._futures:
                self._client.cancel([*self._futures.values()], force=True)
        self._futures.clear()
        with contextlib.suppress(Exception):
            self._client.close(_LEAVE)


def _at_worker(run: Run, topic: str, task: Task) -> Ended:
    """Run a task in this process, which is a worker's."""
    from distributed import get_worker

    worker = get_worker()
    key = f"{topic}-{task.name}"
    worker.log_event(topic, (task.name, None))
    held = getattr(worker.memory_manager, "memory_limit", None)

    def wanted() -> bool:
        known = worker.state.tasks.get(key)
        return known is not None and known.state != "cancelled" and worker.status.name == "running"

    host = Host(
        name=f"the worker {worker.name or worker.address}",
        threads=worker.state.nthreads,
        memory=int(held or 0),
        wanted=wanted,
        say=lambda text: worker.log_event(topic, (task.name, text)),
    )
    return run(task, host)
