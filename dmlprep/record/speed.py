"""Times of models, side by side on one device, from ``bench`` and ``prepare --bench``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dmlprep.core.text.sizes import seconds_text

SOFTWARE = "a software device: not the times of a GPU"
"""The note for times of a device that computes on the CPU."""

ON_CPU = "times of the CPU, not of a GPU"
"""The note for a choice that was made for a GPU by times of a CPU."""

_EQUAL = 0.02
"""Smallest distance of a ratio from 1 that makes a difference to a user."""

BUSY = 2.0
"""Ratio of p90 to p10 above which another program probably used the device."""


@dataclass(frozen=True)
class Times:
    """Times of single runs, in seconds (``parity/bench/statistics.py``).

    Attributes:
        runs: number of runs.
        p10, p90: the tenth and the ninetieth percentile.
        per_second: runs per second, one after the other.
    """

    runs: int
    median: float
    p10: float
    p90: float
    per_second: float


@dataclass(frozen=True)
class Ratio:
    """The time of one model as a multiple of the time of another (``to``), over the rounds in which both ran.

    Attributes:
        value: the quotient of the same quantile of both; below 1 is faster.
        low, high: interval of 95 % confidence; ``None`` if there were too few rounds.
    """

    to: str
    value: float
    low: float | None = None
    high: float | None = None
    rounds: int = 0

    def __str__(self) -> str:
        """Return the ratio in words: ``2.8 times as fast as model.onnx (2.6 to 3.0)``."""
        if self.low is None or self.high is None or min(self.low, self.value) <= 0:
            return f"not compared with {self.to}: too few rounds"
        if self.low <= 1 <= self.high or abs(self.value - 1) < _EQUAL:
            times = f"{1 / self.high:.2f} to {1 / self.low:.2f} times as fast"
            return f"not clearly faster or slower than {self.to} ({times})"
        if self.value < 1:
            return f"{1 / self.value:.1f} times as fast as {self.to} ({1 / self.high:.1f} to {1 / self.low:.1f})"
        return f"slower: {self.value:.2f} times the time of {self.to} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class DeviceSpeed:
    """The best speed of a GPU in small models on DirectML, measured once for each device and driver.

    Attributes:
        memory_fp32, memory_fp16: bytes that one operator reads and writes, per second.
        arithmetic_fp32, arithmetic_fp16: floating-point operations per second, of a product of matrices or a
            convolution; a multiply-add counts as two.
        launch_seconds: time of a run of one element, with input and output on the device.
        copy_seconds: additional time of the same run with upload of the input and readback of the output.
        measured: date of the measurement (``2026-11-28``).
    """

    memory_fp32: float
    memory_fp16: float
    arithmetic_fp32: float
    arithmetic_fp16: float
    launch_seconds: float
    copy_seconds: float
    measured: str = ""

    @property
    def memory(self) -> float:
        """The larger of the two throughputs of memory, in bytes per second."""
        return max(self.memory_fp32, self.memory_fp16)


@dataclass(frozen=True)
class PartBound:
    """The work of one fused graph, and the least time for it.

    Attributes:
        name: its first node.
        nodes: number of its nodes.
    """

    name: str
    nodes: int
    flops: int
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class Bound:
    """The least time that a run can take on a device, by its speed and the model's shapes.

    Attributes:
        flops: floating-point operations on DirectML.
        nbytes: bytes that fused graphs, and nodes outside of them, read and write.
        seconds: the bound, with inputs and outputs on the device.
        limit: the largest part of the bound: ``arithmetic``, ``memory``, or the ``launch`` of the run.
        share: the bound divided by the median time of a run, 0 to 1.
        parts: the fused graphs, those with the largest bounds first.
        unknown: number of nodes whose shapes are unknown, and which therefore do not count.
    """

    flops: int
    nbytes: int
    seconds: float
    limit: Literal["arithmetic", "memory", "launch"]
    share: float
    parts: tuple[PartBound, ...] = ()
    unknown: int = 0


@dataclass(frozen=True)
class Timed:
    """Times and memory of one model, or of one way to open it. ``None``: not measured, or unknown.

    Attributes:
        sizes: sizes of free dimensions that the session fixes, by name.
        not_run: why it did not run; otherwise empty.
        load_seconds, first_seconds: time to make the session, and of the first run, which prepares later ones.
        times: later runs, each with its inputs uploaded and its outputs read back.
        on_device: runs with inputs and outputs on the device; ``not_apart``: why there are none.
        copying_seconds: time of upload and readback: the median of ``times`` minus that of ``on_device``. Negative if
            it is less than the noise.
        peak_memory: peak of the worker's system memory in bytes.
        idle_memory: system memory of the worker in bytes, before it loaded the model.
        committed_memory: peak of its private memory in bytes, on Windows.
        device_memory: memory of the adapter in use at the end, in bytes, from DXGI.
        device_peak, shared_peak: peaks of the device's own memory, and of the system memory that it reads, in bytes, up
            to the end of the first run. On Windows dmlprep samples DXGI.
        nodes, cpu_nodes: nodes of the session's graph before fusion, and those of them on the CPU.
        partitions: number of fused graphs.
        ratio: its median time as a multiple of that of the first model that ran; ``None`` for the first model.
        least_disturbed: the same for p10, which other programs on the machine change least.
        bound: the least time that a run can take; ``None`` on a CPU and on other software devices.
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
    bound: Bound | None = None


@dataclass(frozen=True)
class Bench:
    """Times of several models, measured in turn in one run. They are information: no verdict comes from them.

    Attributes:
        device: the device that answered; empty if no model ran.
        inputs: ``given`` by the user, or ``seeded`` (random).
        note: limits of the times: ``SOFTWARE`` for a device that computes on the CPU; otherwise empty.
        rounds: number of turns of every model.
        device_speed: speed of the GPU; ``None`` on a CPU and on other software devices, or if it could not be measured.
    """

    device: str
    models: tuple[Timed, ...]
    inputs: Literal["", "given", "seeded"] = ""
    note: str = ""
    rounds: int = 0
    seconds: float = 0.0
    device_speed: DeviceSpeed | None = None

    def sentences(self) -> list[str]:
        """Return the time of each model as a multiple of the first model's, in words, then the ``doubts``.

        If only one model ran, its time is in the first sentence.
        """
        ran = [one for one in self.models if one.times is not None]
        results = [f"{one.name} is {one.ratio}" for one in ran if one.ratio is not None]
        results = results or [
            f"{one.name} takes {seconds_text(one.times.median)} for a run" for one in ran if one.times
        ]
        return [*results, *self.doubts]

    @property
    def doubts(self) -> list[str]:
        """Reasons to doubt the times, in words: models that did not run, noise, a software device."""
        doubts = [f"{one.name} did not run: {one.not_run}" for one in self.models if one.not_run]
        times = [one.times for one in self.models if one.times is not None and one.times.p10 > 0]
        spread = max((one.p90 / one.p10 for one in times), default=1.0)
        doubts += [f"the machine was busy: p90 is {spread:.0f} times p10"] if spread > BUSY else []
        return [*doubts, self.note] if self.note else doubts

    @property
    def exit_code(self) -> int:
        """The exit code: 3 if a model did not run, otherwise 0."""
        return 3 if any(one.not_run for one in self.models) else 0
