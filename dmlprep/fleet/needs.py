"""Estimate how much memory a job needs, and how many jobs may run on this machine at a time."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from dmlprep.fleet.matrix import Job
from dmlprep.process.starting import allowed_memory

_ON_CPU, _ON_DML = 250 << 20, 1536 << 20
_TIMES = 2.5
"""A job needs a base (``_ON_CPU`` or ``_ON_DML`` bytes) and this many times the size of the weights.

Both are above all values measured by ``tests/benchmarks/fleet.py --memory`` (docs/figures.md). The base of DirectML is
that on Linux: Wine, and a driver that computes on the CPU.
"""


def memory_needed(nbytes: int, *, dml: bool) -> int:
    """Return the estimated peak of private memory, in bytes, to prepare and prove a model of ``nbytes`` bytes.

    It includes all processes of the job. ``dml``: the job uses DirectML.
    """
    return (_ON_DML if dml else _ON_CPU) + int(_TIMES * nbytes)


def model_bytes(model: Path) -> int:
    """Return the size in bytes of a model's file, and of files with its name next to it, which are probably its data.

    If a file cannot be read, return the sum of those before it, possibly 0.
    """
    total = 0
    with contextlib.suppress(OSError):
        total = model.stat().st_size
        with os.scandir(model.parent) as entries:
            for entry in entries:
                data = entry.name.startswith((f"{model.name}.", f"{model.name}_")) or entry.name == f"{model.stem}.data"
                if data and entry.is_file():
                    total += entry.stat().st_size
    return total


def job_memory(job: Job) -> int:
    """Return the estimated memory that a job needs, in bytes."""
    return memory_needed(model_bytes(job.model), dml=job.options.get("device") != "cpu")


@dataclass(frozen=True)
class Room:
    """The limits for all jobs together: ``jobs`` at a time, and ``memory`` in bytes (0 if unknown)."""

    jobs: int
    memory: int

    def limit(self, needed: int) -> int:
        """Return the memory limit of one job in bytes; 0 for no limit.

        It is an equal share of ``memory``, or ``needed`` if larger, but at most all of ``memory``.
        """
        return min(max(needed, self.memory // self.jobs), self.memory)


def room(jobs: int | None = None) -> Room:
    """Return the limits of this machine: ``jobs``, by default one for each processor, and the memory for processes."""
    if jobs is None:
        jobs = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return Room(jobs, allowed_memory().nbytes)
