"""What a cluster costs a fleet: many jobs that do nothing, over many workers of one machine.

python -m tests.benchmarks.fleet_cluster                               10,000 jobs, 200 workers in 2 processes
python -m tests.benchmarks.fleet_cluster --jobs 2000 --workers 50 --seconds 0.5
python -m tests.benchmarks.fleet_cluster --whole 1000                  and the fleet's own part: keys, folders, locks

The scheduler is a process of its own, the workers are threads of a few, this process is the client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dmlprep.fleet import Ended, Engine, FleetRequest, Started, Task, jobs_of, run_fleet
from dmlprep.fleet.at_worker import Host
from dmlprep.fleet.cluster import ClusterEngine
from dmlprep.pipeline.project import read_project
from tests.fleet.standin import prepare

_ROOT = Path(__file__).parents[2]
_LINES = 10
"""Lines of progress that a job writes, about as many as a recipe has steps."""

_CALM = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "10s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "10s",
}
"""What a worker looks at 50 times a second to watch itself would, for 100 in a process, be all that this measures."""


def stand_in(task: Task, host: Host) -> Ended:
    """What a worker does: some lines, for as long as the task says."""
    seconds = float(task.arguments[0])
    for number in range(_LINES):
        host.say(f"step {number}: changed")
        time.sleep(seconds / _LINES)
    return Ended(task.name, 0, "", seconds)


def whole(task: Task, host: Host) -> Ended:
    """What a worker does for a whole fleet: the stand-in of ``prepare``, with its files."""
    return Ended(task.name, prepare(task.arguments, host.say), "", 0.01)


async def _work(file: str, count: int) -> None:
    """Be so many workers of one thread each, until the scheduler is gone."""
    from distributed import Worker

    workers = [
        await Worker(scheduler_file=file, nthreads=1, dashboard=False, memory_limit=0, name=f"{os.getpid()}-{number}")
        for number in range(count)
    ]
    await asyncio.gather(*(worker.finished() for worker in workers))


@contextmanager
def cluster(workers: int, processes: int) -> Iterator[tuple[str, int]]:
    """A scheduler and workers; its address and the id of its process."""
    with tempfile.TemporaryDirectory(prefix="fleet-cluster-") as name:
        file = Path(name, "scheduler.json")
        variables = {**os.environ, **_CALM, "PYTHONPATH": str(_ROOT)}

        def start(*command: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [sys.executable, *command], cwd=name, env=variables, stderr=subprocess.DEVNULL, start_new_session=True
            )

        host = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        started = [start("-m", "dask", "scheduler", *host)]
        try:
            while not (file.exists() and file.stat().st_size):
                time.sleep(0.1)
            part = ("-m", "tests.benchmarks.fleet_cluster", "--work", str(file), str(workers // processes))
            started += [start(*part) for _ in range(processes)]
            yield json.loads(file.read_text())["address"], started[0].pid
        finally:
            for process in started:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Watched:
    """Memory and processor time of a process."""

    def __init__(self, pid: int) -> None:
        self._stat, self._status = Path(f"/proc/{pid}/stat"), Path(f"/proc/{pid}/status")

    def mib(self, field: str) -> float:
        found = next(line for line in self._status.read_text().splitlines() if line.startswith(f"{field}:"))
        return int(found.split()[1]) / 1024

    def seconds(self) -> float:
        fields = self._stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for(engine: ClusterEngine, workers: int) -> None:
    """Until all workers are there: a fleet does not wait for them, but a figure must."""
    end = time.monotonic() + 300
    while engine.threads < workers:
        if time.monotonic() > end:
            raise TimeoutError(f"{engine.threads} of {workers} workers after 300 s")
        time.sleep(1)


def simulate(address: str, pid: int, jobs: int, seconds: float) -> None:
    engine = ClusterEngine(address, stand_in)
    try:
        wait_for(engine, ARGUMENTS.workers)
        scheduler, client = Watched(pid), Watched(os.getpid())
        empty = (scheduler.mib("VmRSS"), client.mib("VmRSS"), scheduler.seconds(), client.seconds())
        began, first, heard, most, lines = time.monotonic(), 0.0, 0, 0.0, 0
        left = iter(range(jobs))
        going, latency = 0, []
        submitted: dict[str, float] = {}
        while heard < jobs:
            while engine.room > 0 and (number := next(left, None)) is not None:
                name = f"model{number:05}/ort-1.30/small"
                submitted[name] = time.monotonic()
                engine.submit(Task(name, (str(seconds),), 300 << 20))
                going += 1
            most = max(most, going - heard)
            for event in engine.results(wait=True):
                if isinstance(event, Ended):
                    assert event.exit_code == 0, event.error
                    heard += 1
                    first = first or time.monotonic() - began
                elif isinstance(event, Started):
                    latency.append(time.monotonic() - submitted.pop(event.name))
                else:
                    lines += 1
        took = time.monotonic() - began
    finally:
        engine.close()
    ideal = jobs * seconds / ARGUMENTS.workers
    print(f"{jobs} jobs of {seconds:g} s over {ARGUMENTS.workers} workers: {took:.1f} s; first result {first:.2f} s")
    print(
        f"  without any cost {ideal:.1f} s; {1000 * (took - ideal) / jobs:.2f} ms a job over it; in flight {most:.0f}"
    )
    print(f"  lines of progress that came live: {lines} of {_LINES * jobs}; jobs begun: {len(latency)}")
    cpu = (scheduler.seconds() - empty[2], client.seconds() - empty[3])
    for what, one, before, used in zip(("scheduler", "client"), (scheduler, client), empty, cpu, strict=False):
        print(
            f"  {what}: {before:.0f} MiB before, {one.mib('VmHWM'):.0f} MiB at its peak; "
            f"{used:.1f} s of processor, {1000 * used / jobs:.2f} ms a job"
        )


def fleets(address: str, jobs: int) -> None:
    """The whole of a fleet with stand-ins for models: on the cluster, again, and in this process."""
    with tempfile.TemporaryDirectory(prefix="fleet-whole-") as name:
        folder = Path(name)
        (folder / "m").mkdir()
        for number in range(jobs):
            (folder / f"m/{number:05}.onnx").write_text(f"good {number}")
        (folder / "dmlprep.toml").write_text('device = "cpu"\n[models."m/*.onnx"]\n')
        for what in ("first run", "second run"):
            began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
            read = read_project(folder / "dmlprep.toml")

            def engine() -> Engine:
                made = ClusterEngine(address, whole)
                wait_for(made, ARGUMENTS.workers)
                return made

            ran = run_fleet(
                FleetRequest(file="dmlprep.toml", base=folder, out=folder / "out", jobs=jobs_of(read), engine=engine)
            )
            took, now = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
            cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
            print(f"whole fleet of {jobs}, {what}: {took:.1f} s, {1000 * took / jobs:.1f} ms a job,", end=" ")
            print(f"{1000 * cpu / jobs:.1f} ms of the client's processor; exit code {ran.record.exit_code}")


def main() -> None:
    with cluster(ARGUMENTS.workers, ARGUMENTS.processes) as (address, pid):
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
        simulate(address, pid, ARGUMENTS.jobs, ARGUMENTS.seconds)
        if ARGUMENTS.whole:
            fleets(address, ARGUMENTS.whole)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--jobs", type=int, default=10_000)
parser.add_argument("--workers", type=int, default=200)
parser.add_argument("--processes", type=int, default=2, help="that hold the workers")
parser.add_argument("--seconds", type=float, default=0.0, help="that a job takes")
parser.add_argument("--whole", type=int, default=0, metavar="JOBS", help="run a whole fleet of so many as well")
parser.add_argument("--work", nargs=2, metavar=("FILE", "COUNT"), help=argparse.SUPPRESS)

if __name__ == "__main__":
    ARGUMENTS = parser.parse_args()
    if ARGUMENTS.work:
        asyncio.run(_work(ARGUMENTS.work[0], int(ARGUMENTS.work[1])))
    else:
        main()
