"""Workers that serve test after test: starting one takes longer than what most tests ask of it.

A room whose tests are about what sessions compute names ``kept_workers`` in its ``conftest.py``. Tests of the workers
themselves, of their ends and of what they leave, start their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dmlprep.process.child import Child
from dmlprep.process.failure import SessionFailure
from dmlprep.runtime import dml, session
from dmlprep.runtime.linux.host import LinuxHost

__all__ = ["kept_workers", "own_workers"]

_idle: dict[tuple[str, ...], list[Child]] = {}

_start = session.python_worker
_start_on_linux = LinuxHost.start_worker

_SHADERS = hashlib.sha256(b"the tests").hexdigest()
"""The shader cache of all tests: their models have many shaders in common."""


def _kept(kind: tuple[str, ...], start: Callable[[], Child]) -> Child:
    """Return a worker that no test uses now, or a new one. Instead of its end, it waits for the next test."""
    idle = _idle.setdefault(kind, [])
    while idle:
        child = idle.pop()
        if child.alive:
            return child
    child = start()
    ask, end = child.ask, child.close
    served: set[str] = set()
    lost: list[str] = []

    def watched(lines: Iterable[Sequence[str]], **options: Any) -> list[list[str]]:
        requests = list(lines)
        try:
            answer = ask(requests, **options)
        except SessionFailure as failure:
            if "887A" in failure.message:  # the GPU is gone, for all sessions of this worker
                lost.append(failure.message)
            raise
        served.update(line[1] for line in requests if line[0] == "load")
        served.difference_update(line[1] for line in requests if line[0] == "close")
        return answer

    def close() -> None:
        if lost:
            end()
        elif child.alive and child not in idle:
            with contextlib.suppress(SessionFailure):
                for number in sorted(served):  # a session that was to end with its worker
                    watched([["close", number]], limit=60.0, memory=0)
            idle.append(child)

    child.ask = watched  # type: ignore[method-assign, assignment]
    child.close = close  # type: ignore[method-assign]
    return child


def _worker(device: str, name: str) -> Child:
    def start() -> Child:
        child = _start(device, name)
        # It serves the models of many tests: those of the checkout, and those that tests make.
        child.readable |= {Path(tempfile.gettempdir()).resolve(), Path(__file__).resolve().parents[1]}
        return child

    return _kept((device,), start)


def _worker_on_linux(host: LinuxHost) -> Child:
    host.shader_key = _SHADERS
    kind = ("dml", str(host.layout.home), host.release, host.gpu.slug if host.gpu else "")
    return _kept(kind, lambda: _start_on_linux(host))


@pytest.fixture(scope="module", autouse=True)
def kept_workers() -> Iterator[None]:
    """Serve sessions of all devices by workers that are there."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (session, dml):
            patch.setattr(module, "python_worker", _worker)
        patch.setattr(LinuxHost, "start_worker", _worker_on_linux)
        yield


@pytest.fixture
def own_workers(kept_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that start and end with their sessions, for a test among others."""
    for module in (session, dml):
        monkeypatch.setattr(module, "python_worker", _start)
    monkeypatch.setattr(LinuxHost, "start_worker", _start_on_linux)
