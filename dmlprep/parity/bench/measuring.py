"""Time models in turns, each in its own child process, so that other load on the machine affects all of them equally.

A round gives every model one turn, in a random order. The next round reverses that order, so that over two rounds no
model has the better place. A turn of a fast model has several timed runs. They follow one run that is not timed, which
brings back the data that other models displaced from the caches.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from dmlprep.core.errors import DmlprepError, InputError, UsageError
from dmlprep.directml.placement import Placement, place
from dmlprep.directml.placement.reading import read_facts
from dmlprep.directml.targets import Target, find_target
from dmlprep.directml.vram.work import Work, work_of
from dmlprep.graph.model import Model
from dmlprep.parity.bench.device import bound, device_speed, measure_speed
from dmlprep.parity.bench.statistics import ratio_of_times, summary
from dmlprep.parity.candidate import adapt_feed, software_device
from dmlprep.parity.feeds.framed import inside
from dmlprep.parity.feeds.framed_feeds import fixed_sizes
from dmlprep.parity.feeds.graph_feeds import Feed
from dmlprep.parity.feeds.sizes import graph_inputs
from dmlprep.passes.framing import Frame, between
from dmlprep.record import DeviceInfo
from dmlprep.record.aliases import Progress, SessionDevice
from dmlprep.record.speed import SOFTWARE, Bench, DeviceSpeed, Timed
from dmlprep.runtime import Session, SessionFailure, SessionHost, SessionOptions, cpu_host, dml_host


@dataclass(frozen=True)
class Variant:
    """One of the models that are timed side by side.

    Attributes:
        name: name in the result.
        path: file of the model.
        sizes: sizes that the session fixes for free dimensions, by name.
        shown: the path for the result, if the file will be moved; empty: ``path``.
        why_not: the reason why the model is not tried; empty if it is.
        frame: the frame (pre- and post-processing) that another of the models has. The feed is then converted for this
            model; ``None``: the feed is used as it is.
    """

    name: str
    model: Model
    path: Path
    sizes: Mapping[str, int] = field(default_factory=dict)
    shown: str = ""
    why_not: str = ""
    frame: Frame | None = None


def overrides(model: Model, sizes: Mapping[str, int]) -> dict[str, int]:
    """Convert sizes by name or by ``input:axis`` to sizes by the names of free dimensions, and return them.

    A session can fix dimensions by name only. Dimensions that the model does not have are skipped.
    """
    by_name: dict[str, int] = {}
    for one in graph_inputs(model):
        for axis, dim in enumerate(one.dims or ()):
            size = sizes.get(f"{one.name}:{axis}", sizes.get(dim) if isinstance(dim, str) else None)
            if isinstance(dim, str) and size is not None:
                by_name[dim] = size
    return by_name


def overridden_like(original: Model, prepared: Model, path: Path, name: str) -> Variant:
    """Return a variant: the original in a session that fixes the same sizes as the prepared model.

    If no size can be fixed, its ``why_not`` has the reason.

    Args:
        path: file of the original.
        name: name of the variant in the result.
    """
    free = [dim for one in graph_inputs(original) for dim in one.dims or () if not isinstance(dim, int)]
    sizes = overrides(original, fixed_sizes(original, prepared))
    if not free:
        return Variant(name, original, path, why_not="its sizes are already fixed")
    if not any(isinstance(dim, str) for dim in free):
        return Variant(name, original, path, why_not="its free dimensions have no names to override")
    if not sizes:
        return Variant(name, original, path, why_not="its sizes are still free in the result")
    return Variant(name, original, path, sizes, frame=between(original.ir, prepared.ir))


def overridden(variant: Variant) -> Model:
    """Return the model of a variant with its ``sizes`` in the inputs: a copy that shares the tensors.

    Without sizes, return the model itself.
    """
    if not variant.sizes:
        return variant.model
    model = variant.model.copy()
    for value in model.ir.graph.inputs:
        if value.shape is None:
            continue
        value.shape = ir.Shape(
            [variant.sizes.get(str(dim.value), dim) if isinstance(dim, ir.SymbolicDim) else dim for dim in value.shape]
        )
    return model


_TURN, _LONGEST_TURN = 0.02, 0.25
"""Limits of the length of a turn in seconds.

All turns are equally long: enough for ``_RUNS_OF_A_TURN`` runs of the slowest model, within these limits.
"""
_RUNS_OF_A_TURN = 6

_MOST_RUNS = 256
"""Largest number of runs in one turn."""

_WARM_UP = 0.1
"""Largest part of the measuring time that the warm-up of each model takes. Its other limits follow."""
_WARM_RUNS, _WARM_SECONDS = 50, 1.0
"""Largest number of runs, and largest number of seconds, of the warm-up of each model."""


@dataclass
class _Runner:
    """One model that is timed: its process and session, and the measurements so far.

    Attributes:
        row: the result so far; its ``not_run`` has the reason if the model does not run.
        apart: True if runs without the copies between CPU and GPU can be timed too.
        fastest: seconds of the fastest run in the warm-up.
        device_times: seconds of runs without these copies.
    """

    variant: Variant
    device: SessionDevice
    options: SessionOptions
    feed: Feed
    host: SessionHost | None = None
    session: Session | None = None
    row: Timed = field(init=False)
    apart: bool = False
    fastest: float = 0.0
    turns: dict[int, tuple[float, ...]] = field(default_factory=dict)
    """Seconds of its runs, with the copies between CPU and GPU, by the number of the round."""
    device_times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        one = self.variant
        self.row = Timed(one.name, one.shown or str(one.path), dict(one.sizes), not_run=one.why_not)

    @property
    def runs(self) -> bool:
        return not self.row.not_run

    @property
    def timed(self) -> int:
        """The number of timed runs so far, except those without the copies between CPU and GPU."""
        return sum(map(len, self.turns.values()))

    def fails(self, error: DmlprepError) -> None:
        """Store in ``row`` why the model does not run or no longer runs, and end its process."""
        self.row = Timed(self.row.name, self.row.path, self.row.sizes, not_run=str(error))
        self.close()

    def start(self, warm_seconds: float, *, apart: bool) -> None:
        """Load the model, run it once, and warm it up; store load time, memory and placement in ``row``.

        Args:
            warm_seconds: largest number of seconds for the warm-up.
            apart: True to try also runs without the copies between CPU and GPU.

        Raises:
            SessionFailure: the model does not load or run.
            InputError: an input has no value.
        """
        self.host = cpu_host() if self.device == "cpu" else dml_host(session=self.options)
        idle = self.host.memory().peak
        size = self.variant.model.stored_bytes if self.device == "cpu" else None
        self.session = self.host.open(self.variant.path, replace(self.options, model_bytes=size))
        if self.device == "dml":
            self.host.memory()  # memory that the loader frees shows now or never
        if missing := [value.name for value in self.session.inputs if value.name not in self.feed]:
            fix = "pass a value with --feeds"
            raise InputError(f"input {missing[0]!r} has no value", fix=fix, code="DP705")
        self.session.bind(adapt_feed(self.feed, self.session.inputs, str(self.variant.path)))
        (first,) = self.session.time(1, 0.0)
        self.row = replace(self.row, idle_memory=idle, load_seconds=self.session.load_seconds, first_seconds=first)
        if self.device == "dml":
            # Before runs that keep inputs and outputs on the device, which are more than an app's.
            held = self.host.memory()
            self.row = replace(self.row, device_peak=held.device_peak, shared_peak=held.shared_peak)
        with contextlib.suppress(SessionFailure):  # some releases of ONNX Runtime report no placement
            providers = [node.provider for node in self.session.placement()]
            self.row = replace(self.row, nodes=len(providers), cpu_nodes=providers.count("CPUExecutionProvider"))
        if apart:
            try:
                self.session.time(1, 0.0, on_device=True)
                self.apart = True
            except SessionFailure as failure:
                self.row = replace(self.row, not_apart=failure.message.splitlines()[0])
                if not self.session.alive:
                    self.close()
                    self.start(warm_seconds, apart=False)
                    return
        self.fastest = min(self.session.time(_WARM_RUNS, warm_seconds))

    def turn(self, number: int, seconds: float) -> None:
        """Run the model for ``seconds``, and if possible again without the copies between CPU and GPU; store the times.

        ``number`` is the number of the round.
        """
        self.turns[number] = self._runs(seconds, on_device=False)
        if self.apart:
            self.device_times += self._runs(seconds, on_device=True)

    def _runs(self, seconds: float, *, on_device: bool) -> tuple[float, ...]:
        assert self.session is not None
        # Limit turns by time, not by number of runs: on a busy machine a process that rested runs fast at first, so
        # turns of different lengths would not compare.
        took = self.session.time(_MOST_RUNS, seconds, on_device=on_device)
        return took[1:] or took

    def finish(self) -> None:
        """Compute statistics of the times, and store them and the memory of the model's process in ``row``.

        Called when all rounds are done.
        """
        assert self.host is not None
        memory = self.host.memory()
        times = summary([run for turn in self.turns.values() for run in turn])
        alone = summary(self.device_times) if self.device_times else None
        self.row = replace(
            self.row,
            times=times,
            on_device=alone,
            copying_seconds=None if alone is None else times.median - alone.median,
            # The kernel estimates the peak: a later one can be a few pages below an earlier one.
            peak_memory=None if memory.peak is None else max(memory.peak, self.row.idle_memory or 0),
            committed_memory=memory.committed,
            device_memory=memory.device,
        )

    def close(self) -> None:
        if self.host is not None:
            self.host.close()
        self.host = self.session = None


def measure(
    variants: Sequence[Variant],
    device: SessionDevice,
    feed: Feed,
    *,
    session: SessionOptions,
    inputs: Literal["", "given", "seeded"] = "",
    seconds: float = 10.0,
    runs: int = 10,
    progress: Progress = lambda share, text: None,
) -> Bench:
    """Time models in turns on one feed, and return their times.

    All models are loaded at the same time. If a model does not load or run, the result has the reason, and the others
    continue.

    Args:
        feed: values by input name; each model uses the inputs that it has, in its own element types.
        session: options of all sessions; the sizes that a session fixes come from the variant.
        inputs: the origin of the feed, for the result.
        seconds: total time in seconds for the timed runs of all models.
        runs: smallest number of timed runs for each model, however long they take.

    Raises:
        CheckNotRun: the device is not available.
        UsageError, ModelRefused: as ``framed.inside``, for a variant with a frame.
    """
    began = time.perf_counter()
    runners = [_Runner(one, device, _options(session, one), inside(one.frame, feed, one.model.ir)) for one in variants]
    device_info: DeviceInfo | None = None
    rounds = 0
    try:
        for runner in runners:
            progress(0.0, f"load {runner.variant.name}")
            if runner.runs:
                _tried(runner, lambda r: r.start(min(_WARM_UP * seconds, _WARM_SECONDS), apart=device == "dml"))
            if runner.session is not None:
                device_info = device_info or runner.session.device
        rounds = _rounds(runners, seconds, runs, progress)
        for runner in runners:
            if runner.runs:
                _tried(runner, _Runner.finish)
    finally:
        for runner in runners:
            runner.close()
    seconds_taken = round(time.perf_counter() - began, 3)
    speed = None
    if device_info is not None and not software_device(device, device_info):
        progress(0.99, "measure the device")
        speed = device_speed(device_info, lambda: measure_speed(session))
    return Bench(
        device=str(device_info or ""),
        models=_rows(runners, device_info, speed),
        inputs=inputs,
        note=SOFTWARE if device == "dml" and software_device(device, device_info) else "",
        rounds=rounds,
        seconds=seconds_taken,
        device_speed=speed,
    )


def _options(session: SessionOptions, variant: Variant) -> SessionOptions:
    # Threads that wait for more work between two runs would take the processor from the next model.
    config = {"session.force_spinning_stop": "1", **session.config}
    return replace(session, config=config, free_dimensions=dict(variant.sizes), record_placement=True)


def _tried(runner: _Runner, do: Callable[[_Runner], None]) -> None:
    """Call ``do`` with the runner; if it raises a failure of the model, store that in the runner instead."""
    try:
        do(runner)
    except (SessionFailure, InputError) as error:
        runner.fails(error)


def _rounds(runners: Sequence[_Runner], seconds: float, runs: int, progress: Progress) -> int:
    """Run rounds until ``seconds`` have passed and every model has ``runs`` timed runs; return the number of rounds."""
    draw = random.Random(0)
    began = time.perf_counter()
    done = 0
    order: list[_Runner] = []
    slowest = max((one.fastest for one in runners if one.runs), default=0.0)
    turn = max(_TURN, min(_RUNS_OF_A_TURN * slowest, _LONGEST_TURN))
    while running := [one for one in runners if one.runs]:
        spent = time.perf_counter() - began
        if spent >= seconds and min(one.timed for one in running) >= runs:
            break
        progress(min(spent / seconds, 1.0) if seconds else 1.0, f"round {done + 1}")
        order = order[::-1] if done % 2 else draw.sample(list(runners), len(runners))
        for runner in order:
            if runner.runs:
                _tried(runner, lambda r, number=done: r.turn(number, turn))  # type: ignore[misc]
        done += 1
    return done


def _rows(runners: Sequence[_Runner], device: DeviceInfo | None, speed: DeviceSpeed | None) -> tuple[Timed, ...]:
    first = next((one for one in runners if one.runs), None)
    rows = []
    for one in runners:
        row = one.row
        if software_device(one.device, device):
            row = replace(row, device_memory=None)  # system memory, which the worker's memory includes
        if one.runs and one.device == "dml":
            with contextlib.suppress(DmlprepError):
                model, target = overridden(one.variant), _target(device)
                placement = place(model, target)
                row = replace(row, partitions=placement.partitions)
                if speed is not None:
                    works = _works(model, one.feed, placement, target)
                    row = replace(row, bound=None if works is None else bound(works, speed, row))
        if one.runs and first is not None and one is not first:
            medians, least = (ratio_of_times(first.row.name, first.turns, one.turns, q) for q in (0.5, 0.1))
            row = replace(row, ratio=medians, least_disturbed=least)
        rows.append(row)
    return tuple(rows)


def _target(device: DeviceInfo | None) -> Target:
    """Return the release that ran, for predictions; the latest known one if dmlprep does not know that release."""
    release = ".".join((device.onnxruntime if device else "").split(".")[:2])
    try:
        return find_target(f"ort-{release}")
    except UsageError:
        return find_target("latest")


def _works(model: Model, feed: Feed, placement: Placement, target: Target) -> list[Work] | None:
    """Return the work of a run with the sizes of a feed; ``None`` if the nodes are other ones with these sizes.

    ``placement`` is that of the model as its session has it, perhaps with free sizes.
    """
    sized = model.copy()
    for value in sized.ir.graph.inputs:
        if value.name in feed:
            value.shape = ir.Shape(feed[value.name].shape)
    main = [node for node in placement.nodes if not node.graph]
    try:
        return work_of(read_facts(sized, target.tables), main, target.tables)
    except ValueError:
        return None
