"""Run jobs on the workers of a Dask cluster. Only this module imports ``distributed``."""

from __future__ import annotations

import contextlib
import logging
import math
import pickle
import queue
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dmlprep.core.errors import CheckNotRun, DmlprepError, InternalError, UsageError
from dmlprep.fleet.at_worker import Host, other_versions, run_task
from dmlprep.fleet.engine import WAIT, Ended, Event, Progress, Started, Task, waited

_CONNECT = 15.0
"""The most seconds to wait for the scheduler's answer."""

_PATIENCE = 120.0
"""Seconds without any worker after which jobs are given up; a pod needs a while to start."""

_AHEAD = 3
"""The most jobs that are submitted at a time, for each thread of all workers, so that no thread waits for a job."""

_RECOUNT = 10.0
"""Seconds between counts of the workers; a tenth of it while there are none."""

_LEAVE, _GONE = 2.0, 0.4
"""The most seconds for closing the connection, and before it for workers to report stopped jobs (Ctrl-C allows 0.5)."""

_MEMORY = "memory"
_ON_DML = ("dml", "gpu")
"""Dask resources that a worker may declare. ``memory``: bytes for all its jobs. ``dml`` or ``gpu``: the number of jobs
that may use DirectML at a time."""

_AT_WORK = ("running", "paused", "closing_gracefully")
"""States of a Dask worker in which its running jobs may continue."""

_BEGUN, _STOPPED = 0, 1
"""Events that a worker sends about a job: it has begun, or was stopped. Other events are lines of its output."""

_BLAMELESS = 5
"""Most retries of a job that Dask gave up because workers were lost, although the job had hardly run.

Dask counts every lost worker to which the job was assigned, even if the job was only waiting.
"""

Run = Callable[[Task, Host], Ended]


class _Again(NamedTuple):
    """A task that must be submitted again."""

    name: str


class ClusterEngine:
    """An ``Engine`` that sends each task to a worker of a Dask cluster, which runs it in a process with a memory limit.

    If a worker is lost, its job runs on another one, as often as the scheduler allows (``allowed-failures``, 3). A job
    that ends with an error is not run again: its exit code is a result.

    Args:
        address: address of the scheduler, such as ``tcp://10.0.0.1:8786`` or ``tls://...``, or its ``.json`` file.
        run: the function that a worker calls; the worker must be able to import it.
        patience: seconds without any worker after which all jobs are given up.

    Raises:
        UsageError: ``distributed`` is not installed.
        CheckNotRun: no scheduler answers, or Dask has no certificates for the address.
    """

    def __init__(self, address: str, run: Run = run_task, *, patience: float = _PATIENCE) -> None:
        try:
            import distributed
        except ImportError as error:
            what = f"a cluster needs the package distributed: {error}"
            raise UsageError(what, fix='pip install "dmlprep[dask]"') from error
        self._distributed: Any = distributed
        self._run = run
        self._patience = patience
        self._topic = f"dmlprep-{uuid.uuid4().hex}"
        self._events: queue.Queue[Event | _Again] = queue.Queue()
        self._tasks: dict[str, Task] = {}
        self._submissions: Counter[str] = Counter()
        self._begun: Counter[str] = Counter()
        self._futures: dict[str, Any] = {}
        self._started: set[str] = set()
        self._stopped: set[str] = set()
        self._threads, self._counted, self._manned = 0, -math.inf, time.monotonic()
        self._declared: dict[str, float] = {}
        self._levels = _silenced()
        self._client = self._connect(address)
        self._client.subscribe_topic(self._topic, self._hear)

    def _connect(self, address: str) -> Any:
        try:
            if not address.endswith(".json"):
                return _bounded(partial(self._open, address=address))
            if Path(address).is_file():
                return _bounded(partial(self._open, scheduler_file=address))
            raise FileNotFoundError("no such file")  # Dask would wait for it
        except (OSError, ValueError, TypeError, RuntimeError) as error:  # the last three: not an address
            _heard_again(self._levels)
            what = f"no Dask scheduler answers: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
            fix = "start one (dask scheduler), or pass the address that it prints"
            if "ssl_context" in str(error):
                what = "Dask has no certificates for this address"
                fix = "set DASK_DISTRIBUTED__COMM__TLS__CA_FILE and the variables of the client (docs/fleet.md)"
            raise CheckNotRun(what, where=address, fix=fix) from error

    def _open(self, **where: str) -> object:
        return self._distributed.Client(**where, timeout=_CONNECT, set_as_default=False, name="dmlprep")

    @property
    def room(self) -> int:
        """The number of tasks that ``submit`` accepts now."""
        return _AHEAD * max(1, self.threads) - len(self._futures)

    @property
    def threads(self) -> int:
        """Number of threads of all workers together, counted at most some seconds ago."""
        self._recount()
        return self._threads

    def _recount(self) -> None:
        """Ask the scheduler for the workers' threads and resources, unless the last count is recent."""
        now = time.monotonic()
        if now - self._counted < (_RECOUNT if self._threads else _RECOUNT / 10):
            return
        with contextlib.suppress(OSError):
            workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
            self._threads = sum(one["nthreads"] for one in workers)
            self._declared = {}
            for one in workers:
                for name, most in one.get("resources", {}).items():
                    self._declared[name] = max(most, self._declared.get(name, 0.0))
        self._counted = now
        if self._threads:
            self._manned = now

    def submit(self, task: Task) -> None:
        """Send a task to the scheduler; without a connection, the task ends immediately with exit code 3."""
        self._recount()
        self._futures[task.name] = None
        if self._client.status != "running":
            self._events.put(Ended(task.name, CheckNotRun.exit_code, "lost the scheduler"))
            return
        self._tasks[task.name] = task
        self._submissions[task.name] += 1
        future = self._client.submit(
            _at_worker,
            self._topic,
            task.name,
            task.facts.get("here"),
            # As bytes: a worker of another version must be able to report that before it decodes newer types.
            pickle.dumps((self._run, task)),
            key=f"{self._topic}-{self._submissions[task.name]}-{task.name}",
            pure=False,
            retries=0,
            resources=self._asked(task) or None,
        )
        self._futures[task.name] = future
        future.add_done_callback(partial(self._ended, task.name))

    def _asked(self, task: Task) -> dict[str, float]:
        """Return name -> amount of the declared resources that a task needs: never more than a single worker has."""
        asked: dict[str, float] = {}
        if task.job is not None and task.job.options.get("device") != "cpu":
            asked = {name: 1.0 for name in _ON_DML if self._declared.get(name)}
        if self._declared.get(_MEMORY):
            asked[_MEMORY] = min(float(task.memory), self._declared[_MEMORY])
        return asked

    def results(self, *, wait: bool | float) -> Iterator[Event]:
        """Yield the new events of the workers."""
        for event in waited(self._events, wait, self._pending):
            yield from self._heard(event)

    def _pending(self) -> bool:
        """Return True if some jobs have not ended; if there was no worker for too long, add an end event for each."""
        if self._futures and not self.threads and time.monotonic() - self._manned >= self._patience:
            error = f"the cluster had no worker for {self._patience:g} s"
            for name in self._futures:
                self._events.put(Ended(name, CheckNotRun.exit_code, error))
        return bool(self._futures)

    def _heard(self, event: Event | _Again) -> Iterator[Event]:
        if event.name not in self._futures:
            return  # a line that comes after the end
        if isinstance(event, _Again):
            self.submit(self._tasks[event.name])
            return
        if isinstance(event, Ended):
            del self._begun[event.name], self._submissions[event.name]
            self._tasks.pop(event.name, None)
            future = self._futures.pop(event.name)
            if future is not None:
                future.release()
        elif isinstance(event, Started):
            if event.name in self._started:
                event = Progress(event.name, "its worker was lost: restarted on another worker")
            self._started.add(event.name)
        yield event

    def _hear(self, event: tuple[float, Any]) -> None:
        """Put a worker's event into the queue; Dask calls this in its own thread."""
        _, (name, text) = event
        if text == _STOPPED:
            self._stopped.add(name)
        else:
            self._begun[name] += text == _BEGUN
            self._events.put(Started(name) if text == _BEGUN else Progress(name, text))

    def _ended(self, name: str, future: object) -> None:
        """Put the end of a task, or the order to submit it again, into the queue; Dask calls this in its own thread."""
        try:
            self._events.put(self._outcome(name, future))
        except Exception as wrong:  # any error becomes a result, and the fleet continues
            what = f"the outcome of the job is unknown: {type(wrong).__name__}: {wrong}"
            self._events.put(Ended(name, InternalError.exit_code, what))

    def _outcome(self, name: str, future: Any) -> Ended | _Again:
        code = CheckNotRun.exit_code
        if future.status == "finished":
            ended, error, seconds = future.result()
            return Ended(name, ended, error, seconds)
        if future.status == "cancelled":
            return Ended(name, code, "the scheduler stopped, or lost the job")
        error = future.exception()
        if isinstance(error, self._distributed.KilledWorker):
            times = error.allowed_failures + 1
            if self._begun[name] < times and self._submissions[name] <= _BLAMELESS:
                return _Again(name)
            text = f"{times} workers that had this job were lost, last {error.last_worker.address}"
            return Ended(name, code, f"{text}: no retry (see their logs; the usual cause is memory)")
        if isinstance(error, ImportError):
            what = f"a worker has no dmlprep, or another version: {error} (install the same version on all machines)"
            return Ended(name, code, what)
        return Ended(name, InternalError.exit_code, f"the worker failed: {type(error).__name__}: {error}")

    def close(self) -> None:
        """Cancel the tasks, give the running ones 0.4 s to stop, and close the connection."""
        running = self._started & self._futures.keys()
        with contextlib.suppress(Exception):  # the scheduler may have ended
            if pending := [future for future in self._futures.values() if future is not None]:
                self._client.cancel(pending, force=True)
            end = time.monotonic() + _GONE
            while not running <= self._stopped and self._client.status == "running" and time.monotonic() < end:
                time.sleep(WAIT / 10)
        self._futures.clear()
        with contextlib.suppress(Exception):
            self._client.close(_LEAVE)
        _heard_again(self._levels)


def _bounded(connect: Callable[[], object]) -> object:
    """Return the result of ``connect``, or raise its error; raise TimeoutError if it takes too long.

    Dask itself waits without end for a server that is not a scheduler.
    """
    answers: queue.Queue[object] = queue.Queue()

    def run() -> None:
        try:
            answers.put(connect())
        except BaseException as wrong:
            answers.put(wrong)

    threading.Thread(target=run, name="dmlprep-connect", daemon=True).start()
    end = time.monotonic() + _CONNECT + _LEAVE
    while time.monotonic() < end:
        with contextlib.suppress(queue.Empty):
            answer = answers.get(timeout=WAIT)
            if isinstance(answer, BaseException):
                raise answer
            return answer
    raise TimeoutError("another program listens on this address")


def _silenced() -> dict[str, int]:
    """Silence Dask's loggers, since dmlprep reports lost connections itself; return logger name -> old level."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return levels


def _heard_again(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def _at_worker(topic: str, name: str, here: list[object] | None, order: bytes) -> tuple[int, str, float]:
    """Run a task in this process, which is a Dask worker; return exit code, error text and seconds.

    Args:
        topic: the Dask topic to which events about the task go.
        name: the task's name.
        here: ``Keys.here`` of the submitting machine. If it differs on this worker, the task does not run, and the exit
            code is 3. ``None`` skips this check.
        order: the pickled function and task.
    """
    from distributed import get_worker

    began = time.monotonic()
    worker: Any = get_worker()
    key = worker.get_current_task()
    title = f"the worker {worker.name or worker.address}"
    if here is not None and (wrong := other_versions(here)):
        return CheckNotRun.exit_code, f"{title} {wrong}", 0.0
    run, task = pickle.loads(order)

    def wanted() -> bool:
        known = worker.state.tasks.get(key)
        return known is not None and known.state != "cancelled" and worker.status.name in _AT_WORK

    worker.log_event(topic, (name, _BEGUN))
    host = Host(
        name=title,
        threads=worker.state.nthreads,
        memory=int(getattr(worker.memory_manager, "memory_limit", None) or 0),
        wanted=wanted,
        say=lambda text: worker.log_event(topic, (name, text)),
    )
    try:
        ended = run(task, host)
    except (OSError, DmlprepError) as error:
        ended = Ended(name, CheckNotRun.exit_code, f"{title} cannot run the job: {error}")
    if not wanted():
        worker.log_event(topic, (name, _STOPPED))
    return ended.exit_code, ended.error, ended.seconds or round(time.monotonic() - began, 3)
