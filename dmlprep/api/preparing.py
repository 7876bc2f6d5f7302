"""Make a model ready for DirectML, or all of a project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from dmlprep.api.arguments import Device, Feeds, Metric, PrepareOptions, dml_session, user_metric
from dmlprep.api.recipes import plan
from dmlprep.record import RunRecord

if TYPE_CHECKING:
    from dmlprep.model.pinned import Value
    from dmlprep.pipeline import Observer, PrepareRequest
    from dmlprep.pipeline.buckets import BucketRun

__all__ = ["prepare", "prepare_buckets"]


def prepare(
    path: str | Path,
    *,
    out: str | Path,
    recipe: str | Path = "@static-fp32",
    pins: Mapping[str, Value] | None = None,
    target: str | None = None,
    settings: Sequence[str] = (),
    feeds: Feeds = (),
    device: Device = "auto",
    device_id: int | None = None,
    adapter: str | None = None,
    gpu: str | None = None,
    require_dml: bool = False,
    metric: str | Metric | None = None,
    metric_bound: float | None = None,
    bench: bool = False,
    bench_seconds: float = 10.0,
    fresh: bool = False,
    external_data: bool = False,
    vram: str | int | None = None,
    force: bool = False,
    observer: Observer | None = None,
    command_line: str = "",
) -> RunRecord:
    """Make a model ready for DirectML, prove that it still computes the same, and write it.

    >>> record = dmlprep.prepare("model.onnx", out="fresh", pins={"batch": 1}, device="cpu")
    >>> [(str(verdict.check), verdict.outcome) for verdict in record.verdicts]
    [('parity on cpu', 'passed')]

    Args:
        path: the model; never modified.
        out: folder for ``model.onnx`` and ``run.json``, or a path that ends in ``.onnx``.
        recipe, pins, target, settings: as in ``plan``.
        feeds: inputs to prove with: ``.npz`` files, ``NAME=file.npy``, folders, or arrays by input name; seeded ones
            are made where this is empty.
        device: ``auto`` proves on the CPU, and on DirectML where a session can run; ``dml`` demands it.
        device_id: DirectML adapter, by its number in DXGI's order.
        adapter: in its place, on Windows, its vendor (``NVIDIA``, ``AMD``, ``Intel``, ``Qualcomm``) or a part of its
            name.
        gpu: on Linux, the GPU that DirectML runs on: ``auto``, its vendor, a part of its name or its number
            (``gpus``). It demands DirectML, as ``require_dml`` does. Without it DirectML computes on the CPU.
        require_dml: as ``device="dml"``: without a DirectML session the exit code is 3 and nothing is written.
        metric: ``file.py:function`` or a function of your own, which decides in place of the tolerance
            (docs/parity.md#a-measure-of-your-own); the recipe's where there is none.
        metric_bound: the largest number of it that passes, where it does not decide itself.
        bench: time the model as it came, with its sizes overridden, and the result, once that is proved: on DirectML
            unless ``device`` is ``cpu`` or there is none. ``facts.bench`` holds what was found; it decides nothing.
        bench_seconds: for the timed runs of all three.
        fresh: measure on DirectML also where the verdict of an earlier run on equal files and an equal device is kept
            (docs/parity.md#kept-verdicts).
        external_data: write the weights into ``model.onnx.data``, also where they are below 1 GiB.
        vram: memory that the device has (``4GB``, or bytes): a result that needs more is refused (docs/memory.md).
        force: replace files that are there.
        observer: is told what the run does, such as a progress bar.
        command_line: what the user typed, for the record.

    Returns:
        the record; ``exit_code`` is 0 when the result is in place, 1 when a step refused or parity failed, 3 when a
        demanded check could not run. With 1 and 3 nothing was written.

    Raises:
        UsageError: the input, the output or the recipe is wrong, ``adapter`` names no adapter or several, or ``gpu``
            several.
        CheckNotRun: there is no GPU that ``gpu`` names; the message says what is missing.
    """
    from dmlprep.compiled import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.pipeline import prepare as run

    return run(
        _request(
            path, out, pins, recipe=recipe, target=target, settings=settings, feeds=feeds, device=device,
            device_id=device_id, adapter=adapter, gpu=gpu, require_dml=require_dml, metric=metric,
            metric_bound=metric_bound, bench=bench, bench_seconds=bench_seconds, fresh=fresh,
            external_data=external_data, vram=vram, force=force, observer=observer, command_line=command_line,
        )
    )  # fmt: skip


def prepare_buckets(
    path: str | Path,
    *,
    out: str | Path,
    buckets: Sequence[Mapping[str, int]],
    pins: Mapping[str, Value] | None = None,
    **options: Unpack[PrepareOptions],
) -> BucketRun:
    """Prepare a model at several sizes: a static graph a bucket, each proved, all with one data file (docs/buckets.md).

    Args:
        path: the model; never modified.
        out: folder for the models, their records, ``buckets.data`` and ``buckets.json``.
        buckets: sizes by dimension, the same dimensions in each.
        pins: what holds for all of them.
        options: every other argument of ``prepare``; ``external_data`` is always so.

    Returns:
        the record of each bucket by its name, and what was written. ``exit_code`` is the worst of all: where it is not
        0, nothing was written.

    Raises:
        UsageError: as ``prepare``, naming the bucket; or the buckets contradict each other.
        CheckNotRun: as ``prepare``.
    """
    from dmlprep.compiled import door

    door.start()
    from dmlprep.pipeline.buckets import check_buckets
    from dmlprep.pipeline.buckets import prepare_buckets as run

    common = dict(pins or {})
    named = check_buckets(buckets, common)

    def pinned(sizes: Mapping[str, int]) -> PrepareRequest:
        return _request(path, out, {**common, **sizes}, **options)

    return run(Path(path), Path(out), named, pinned, force=options.get("force", False))


def _request(
    path: str | Path,
    out: str | Path,
    pins: Mapping[str, Value] | None,
    *,
    recipe: str | Path = "@static-fp32",
    target: str | None = None,
    settings: Sequence[str] = (),
    feeds: Feeds = (),
    device: Device = "auto",
    device_id: int | None = None,
    adapter: str | None = None,
    gpu: str | None = None,
    require_dml: bool = False,
    metric: str | Metric | None = None,
    metric_bound: float | None = None,
    bench: bool = False,
    bench_seconds: float = 10.0,
    fresh: bool = False,
    external_data: bool = False,
    vram: str | int | None = None,
    force: bool = False,
    observer: Observer | None = None,
    command_line: str = "",
) -> PrepareRequest:
    """What a run is asked for, by the arguments of ``prepare``."""
    from dmlprep.memory import vram_bytes
    from dmlprep.model import EXTERNAL_OVER
    from dmlprep.parity import feed_files, load_feeds
    from dmlprep.pipeline import Observer, PrepareRequest

    session, overrides = dml_session(device, device_id, adapter, gpu, require_dml)
    overrides = [*settings, *overrides]
    made = plan(recipe, pins=pins, target=target, settings=overrides)
    chosen = user_metric(metric, metric_bound, made, observer)
    return PrepareRequest(
        source=Path(path),
        out=Path(out),
        plan=made,
        feeds=load_feeds(feeds),
        force=force,
        session=session,
        metric=chosen,
        bench_seconds=bench_seconds if bench else None,
        command_line=command_line,
        fresh=fresh,
        read=[*feed_files(feeds), *([chosen.file] if chosen and chosen.file else [])],
        vram=None if vram is None else vram_bytes(vram),
        external_over=-1 if external_data else EXTERNAL_OVER,
        observer=observer or Observer(),
    )
