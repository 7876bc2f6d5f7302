"""Fleets on a Dask cluster: the same results, workers that are lost, models that end their worker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

import dmlprep
from dmlprep.core.errors import CheckNotRun, UsageError
from dmlprep.fleet import Ended, FleetObserver, FleetRequest, Ran, Task, cluster, jobs_of, run_fleet
from dmlprep.fleet.at_worker import Gate, Host, run_task
from dmlprep.fleet.cluster import ClusterEngine
from dmlprep.fleet.digests import Digests
from dmlprep.fleet.keys import Keys
from dmlprep.pipeline.project import read_project
from tests.fixtures_index import fixture
from tests.fleet.at_worker import run as stand_in
from tests.fleet.at_worker import where

# Each worker of pytest-xdist collects this file: the package itself is imported by the tests.
pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="clusters are tried on Linux"),
    pytest.mark.skipif(find_spec("distributed") is None, reason="the package distributed is not installed"),
]

ROOT = Path(__file__).parents[2]

FLEET = """
out = "build"
device = "cpu"
[models."m/*.onnx"]
"""


@contextmanager
def _cluster(folder: Path, workers: int, *options: str, failures: int = 3) -> Iterator[str]:
    """A scheduler and workers as processes of their own; its address."""
    file = folder / "scheduler.json"
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(failures),
        "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false",
    }

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *arguments, "--scheduler-file", str(file), "--no-dashboard"],
            cwd=folder,
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    started = [start("scheduler", "--host", "127.0.0.1", "--port", "0")]
    try:
        started += [start("worker", "--nthreads", "1", "--name", f"w{i}", *options) for i in range(workers)]
        while not (file.exists() and file.stat().st_size):  # it is made first, and written then
            time.sleep(0.05)
        (folder / "scheduler.pid").write_text(str(started[0].pid))
        yield json.loads(file.read_text())["address"]
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Listener(FleetObserver):
    """Calls a function with each line of a job."""

    def __init__(self, heard: Callable[[str, str], None]) -> None:
        self.heard = heard

    def job_progress(self, name: str, text: str) -> None:
        self.heard(name, text)


def _run(folder: Path, address: str, observer: FleetObserver | None = None) -> Ran:
    """The fleet of ``folder`` with the stand-in of ``prepare``."""
    (folder / "dmlprep.toml").write_text(FLEET)
    fleet = read_project(folder / "dmlprep.toml")
    request = FleetRequest(
        file=fleet.file,
        base=fleet.folder,
        out=folder / "build",
        jobs=jobs_of(fleet),
        engine=lambda: ClusterEngine(address, stand_in),
        observer=observer or FleetObserver(),
    )
    return run_fleet(request)


def _models(folder: Path, **texts: str) -> None:
    (folder / "m").mkdir()
    for name, text in texts.items():
        (folder / "m" / f"{name}.onnx").write_text(text)


@pytest.mark.slow
def test_the_same_results_as_beside_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real jobs in processes of the workers; one model is none."""
    from distributed import LocalCluster

    (tmp_path / "m").mkdir()
    shutil.copy(fixture("residual_cnn").path, tmp_path / "m/cnn.onnx")
    (tmp_path / "m/none.onnx").write_bytes(b"no model")
    text = 'device = "cpu"\npins = { batch = 1 }\n[models."m/*.onnx"]\nrecipe = "@vision-fp16"\n'
    (tmp_path / "dmlprep.toml").write_text(text)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        monkeypatch.chdir(tmp_path)  # which is not the workers'
        here = dmlprep.prepare_fleet(out="here")
        there = dmlprep.prepare_fleet(out="there", scheduler=cluster.scheduler_address)
    assert [(one.name, one.exit_code, one.key) for one in there.jobs] == [
        (one.name, one.exit_code, one.key) for one in here.jobs
    ]
    assert (there.exit_code, there.counts()) == (2, {"wrong-input": 1, "good": 1})
    for name in ("cnn/model.onnx", "cnn/model.onnx.data"):
        assert (tmp_path / "here" / name).exists() == (tmp_path / "there" / name).exists()
    assert (tmp_path / "here/cnn/model.onnx").read_bytes() == (tmp_path / "there/cnn/model.onnx").read_bytes()
    again = dmlprep.prepare_fleet(out="there")
    assert all(one.reused for one in again.jobs)


@pytest.mark.slow
def test_the_jobs_of_a_worker_that_is_lost_run_elsewhere(tmp_path: Path) -> None:
    _models(tmp_path, a="waits", b="waits", c="good", d="refused")
    heard: list[tuple[str, str]] = []

    def hear(name: str, text: str) -> None:
        heard.append((name, text))
        told = [int(said.removeprefix("pid ")) for _, said in heard if said.startswith("pid ")]
        if len(told) == 2 and text.startswith("pid "):
            os.kill(told[0], signal.SIGKILL)
            (tmp_path / "m/go").touch()

    with _cluster(tmp_path, 2, "--no-nanny") as address:
        ran = _run(tmp_path, address, Listener(hear))
    assert {row.name: row.exit_code for row in ran.record.jobs} == {"a": 0, "b": 0, "c": 0, "d": 1}
    assert sum(text.startswith("its worker was lost") for _, text in heard) == 1
    assert sum(text == "save: 0 MB" for name, text in heard if name == "d") == 1  # what is refused is not tried again


@pytest.mark.slow
def test_a_model_that_ends_its_workers_is_named(tmp_path: Path) -> None:
    _models(tmp_path, bad="kills", **{f"good{i}": "good" for i in range(4)})
    with _cluster(tmp_path, 2, failures=1) as address:
        ran = _run(tmp_path, address)
    rows = {row.name: row for row in ran.record.jobs}
    assert {name: row.exit_code for name, row in rows.items()} == {"bad": 3, **{f"good{i}": 0 for i in range(4)}}
    assert rows["bad"].error.startswith("2 workers that had this job were lost")
    assert ran.record.exit_code == 3


@pytest.mark.slow
def test_a_fleet_that_is_stopped_ends_the_jobs_of_its_workers(tmp_path: Path) -> None:
    _models(tmp_path, a="waits")

    def stop(name: str, text: str) -> None:
        if text.startswith("pid "):
            raise KeyboardInterrupt

    # A job needs more memory than the worker declares: it asks for all of it.
    with _cluster(tmp_path, 1, "--no-nanny", "--resources", "memory=1e6") as address:
        with pytest.raises(KeyboardInterrupt):
            _run(tmp_path, address, Listener(stop))
        assert not (tmp_path / "build/a").exists()
        (tmp_path / "m/a.onnx").write_text("good")  # the one worker must be free for it
        assert _run(tmp_path, address).record.exit_code == 0


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _models(tmp_path, a="good")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match="a cluster needs the package distributed") as wrong:
        _run(tmp_path, "tcp://127.0.0.1:1")
    assert wrong.value.fix == 'pip install "dmlprep[dask]"'


def test_what_is_no_cluster(tmp_path: Path) -> None:
    _models(tmp_path, a="good")
    with pytest.raises(CheckNotRun, match="no Dask scheduler answers"):
        _run(tmp_path, "nonsense://1")
    with pytest.raises(UsageError, match="--jobs does not work with a scheduler"):
        dmlprep.prepare_fleet(tmp_path / "dmlprep.toml", jobs=2, scheduler="tcp://127.0.0.1:1")


def test_a_worker_that_has_something_else_does_not_run_the_job(tmp_path: Path) -> None:
    _models(tmp_path, a="good")
    (tmp_path / "dmlprep.toml").write_text(FLEET)
    job = jobs_of(read_project(tmp_path / "dmlprep.toml"))[0]
    host = Host("the worker w0", 1, 0, lambda: True, lambda _: None)
    found = run_task(Task("a", (), job=job, facts={"here": ["x", "Linux", "x86_64", {"onnx": "0.1"}]}), host)
    assert found.exit_code == 3
    assert "other versions" in found.error
    assert " for 0.1" in found.error
    # The same in everything, but the folder of results is another one: no fleet began a job there.
    there = tmp_path / "elsewhere"
    task = Task("a", ("prepare", "-o", str(there)), job=job, facts=Keys(Digests()).facts(job))
    gone = Host("the worker w0", 1, 0, lambda: False, lambda _: None)
    assert f"does not see the fleet's files in {there}" in run_task(task, gone).error
    job.model.unlink()
    assert "must share the folders" in run_task(Task("a", (), job=job), host).error


def test_a_cluster_without_workers_is_given_up(tmp_path: Path) -> None:
    _models(tmp_path, a="good", b="good")
    (tmp_path / "dmlprep.toml").write_text(FLEET)
    fleet = read_project(tmp_path / "dmlprep.toml")
    with _cluster(tmp_path, 0) as address:
        request = FleetRequest(
            file=fleet.file,
            base=fleet.folder,
            out=tmp_path / "build",
            jobs=jobs_of(fleet),
            engine=lambda: ClusterEngine(address, stand_in, patience=0.5),
        )
        rows = run_fleet(request).record.jobs
    assert [(row.exit_code, row.error) for row in rows] == [(3, "the cluster had no worker for 0.5 s")] * 2


def test_jobs_wait_for_the_memory_of_their_worker() -> None:
    gate = Gate(10)
    with gate.held(6, lambda: True) as first, gate.held(4, lambda: True) as second:
        assert first
        assert second
        with gate.held(4, lambda: False) as third:  # there is none, and nobody wants it any more
            assert not third
    with gate.held(100, lambda: True) as alone:
        assert alone


@pytest.mark.slow
def test_jobs_ask_for_what_workers_declare(tmp_path: Path) -> None:
    """One that is proved on DirectML runs where a worker has it, one on the CPU wherever there is memory."""
    _models(tmp_path, a="good")
    (tmp_path / "dmlprep.toml").write_text(FLEET)
    on_cpu = jobs_of(read_project(tmp_path / "dmlprep.toml"))[0]
    on_dml = replace(on_cpu, options={})
    with _cluster(tmp_path, 1, "--resources", "dml=1 memory=1000", "--nthreads", "2") as address:
        engine = ClusterEngine(address, where)
        try:
            end = time.monotonic() + 60
            while not engine.threads and time.monotonic() < end:
                time.sleep(0.1)
            for name, job in (("cpu", on_cpu), ("dml", on_dml)):
                engine.submit(Task(name, (), 1 << 30, job))
            found: dict[str, str] = {}
            while events := list(engine.results(wait=True)):
                found |= {event.name: event.error for event in events if isinstance(event, Ended)}
        finally:
            engine.close()
    assert found == {"cpu": "memory=1000.0", "dml": "dml=1.0 memory=1000.0"}


@pytest.mark.slow
def test_a_scheduler_that_is_lost_ends_the_fleet(tmp_path: Path) -> None:
    _models(tmp_path, a="waits", b="good")

    def hear(name: str, text: str) -> None:
        if text.startswith("pid "):
            os.kill(int((tmp_path / "scheduler.pid").read_text()), signal.SIGKILL)

    with _cluster(tmp_path, 1) as address:
        ran = _run(tmp_path, address, Listener(hear))
    rows = {row.name: row for row in ran.record.jobs}
    assert rows["a"].exit_code == 3
    assert "the scheduler stopped" in rows["a"].error
    assert ran.record.exit_code == 3


@pytest.mark.slow
def test_a_server_that_says_nothing_is_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_CONNECT", 0.5)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(CheckNotRun, match="no Dask scheduler answers"),
    ):
        ClusterEngine(f"tcp://127.0.0.1:{server.getsockname()[1]}")


def test_an_address_with_tls_without_certificates() -> None:
    with pytest.raises(CheckNotRun, match="no certificates") as caught:
        ClusterEngine("tls://127.0.0.1:9")
    assert "CA_FILE" in caught.value.fix
