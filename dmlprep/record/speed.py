"""How fast models ran, side by side on one device: what ``bench`` finds, and ``prepare --bench`` records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SOFTWARE = "a software device: no measure of a GPU"
"""The note next to times of such a device."""

ON_CPU = "times of the CPU: no measure of a GPU"
"""The note for a choice for a GPU by such times."""


@dataclass(frozen=True)
class Times:
    """Times of single runs, in seconds (``parity/bench/statistics.py``); ``per_second``: runs one after the other."""

    runs: int
    median: float
    p10: float
    p90: float
    per_second: float


@dataclass(frozen=True)
class Ratio:
    """The time of one model as a multiple of another (``to``), over the rounds in which both ran.

    Attributes:
        value: the quotient of the same quantile of both.
        low, high: interval of 95 % confidence; ``None`` if there were too few rounds.
    """

    to: str
    value: float
    low: float | None = None
    high: float | None = None
    rounds: int = 0


@dataclass(frozen=True)
class Timed:
    """One model, or one way to open it. ``None``: not measured, or unknown.

    Attributes:
        sizes: free dimensions that the session overrides, by name.
        not_run: why it did not run; otherwise empty.
        load_seconds, first_seconds: time to make the session, and of the first run, which prepares later ones.
        times: later runs, each with its inputs uploaded and its outputs read back.
        on_device: runs with inputs and outputs on the device; ``not_apart``: why there are none.
        copying_seconds: time of upload and readback: the median of ``times`` minus that of ``on_device``. Negative if
            it is less than the noise.
        peak_memory: peak of the worker's system memory in bytes; ``idle_memory`` of them before it loaded the model.
        committed_memory: peak of its private memory in bytes, on Windows.
        device_memory: bytes of the adapter's memory at the end, from DXGI.
        device_peak, shared_peak: peaks of the device's own memory, and of the system memory that it reads, in bytes, up
            to the end of the first run. On Windows dmlprep samples DXGI.
        nodes, cpu_nodes: nodes of the session's graph before fusion, and those of them on the CPU.
        ratio: its median as a multiple of the first model's that ran; ``None`` for that one.
        least_disturbed: the same for p10, which other programs on the machine change least.
    """

    name: str
    path: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    not_run: str = ""
    load_seconds: float | None = None
    first_seconds: float | None = None
    times: Times | None = None
    on_device: Times | None = None
    copying_seconds: float | None = None
    not_apart: str = ""
    peak_memory: int | None = None
    idle_memory: int | None = None
    committed_memory: int | None = None
    device_memory: int | None = None
    device_peak: int | None = None
    shared_peak: int | None = None
    nodes: int | None = None
    cpu_nodes: int | None = None
    partitions: int | None = None
    ratio: Ratio | None = None
    least_disturbed: Ratio | None = None


@dataclass(frozen=True)
class Bench:
    """Times of all models in one run, in turn. They are information: no verdict comes from them.

    Attributes:
        device: the device that answered; empty if no model ran.
        note: limits of the times: ``SOFTWARE`` for a device that computes on the CPU; otherwise empty.
        rounds: number of turns of every model.
    """

    device: str
    models: tuple[Timed, ...]
    inputs: Literal["", "given", "seeded"] = ""
    note: str = ""
    rounds: int = 0
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """3 where a model did not run, else 0."""
        return 3 if any(one.not_run for one in self.models) else 0
