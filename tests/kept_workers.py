"""Workers that serve test after test: starting one takes longer than what most tests ask of it.

A room whose tests are about what sessions compute names ``kept_workers`` in its ``conftest.py``. Tests of the workers
themselves, of their ends and of what they leave, start their own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmlprep.process.child import Child
from dmlprep.runtime import session

__all__ = ["kept_workers", "own_workers"]

_idle: dict[str, list[Child]] = {}

_start = session.python_worker


def _worker(device: str, name: str) -> Child:
    """A worker that nobody uses now, else a fresh one; instead of its end it waits for the next who asks."""
    if device == "dml":
        return _start(device, name)
    idle = _idle.setdefault(device, [])
    while idle:
        child = idle.pop()
        if child.alive:
            return child
    child = _start(device, name)
    # It serves the models of many tests: those of the checkout, and those that tests make.
    child.readable |= {Path(tempfile.gettempdir()).resolve(), Path(__file__).resolve().parents[1]}

    def close() -> None:
        if child.alive and child not in idle:
            idle.append(child)

    child.close = close  # type: ignore[method-assign]
    return child


@pytest.fixture(scope="module", autouse=True)
def kept_workers() -> Iterator[None]:
    """Let sessions on the CPU and of the evaluator be served by workers that are there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "python_worker", _worker)
        yield


@pytest.fixture
def own_workers(kept_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that start and end with their sessions, for a test among others."""
    monkeypatch.setattr(session, "python_worker", _start)
