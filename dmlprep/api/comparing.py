"""Compare models: outputs, the first node that differs, times. Write feeds from pictures, sound or text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, get_args

from dmlprep.api.preparing import Progress, start_worker, user_metric
from dmlprep.core.errors import OutputError, UsageError
from dmlprep.core.files import user_path
from dmlprep.pipeline.options import Adapter, AdapterKeywords, Feeds, Metric
from dmlprep.record import Verdict
from dmlprep.record.aliases import SessionDevice

if TYPE_CHECKING:
    from dmlprep.parity.bisection.finding import Bisection
    from dmlprep.parity.feeds.sources import Pictures, WrittenFeeds
    from dmlprep.portable.arrays import Array
    from dmlprep.record.speed import Bench
    from dmlprep.runtime.types import OpenBy, Optimization


def check_device(device: str) -> None:
    """Refuse a device that no session has.

    Raises:
        UsageError: ``device`` is neither ``cpu`` nor ``dml``.
    """
    if device not in get_args(SessionDevice):
        raise UsageError(f"{device!r} is not a device", where="device", fix="pass cpu or dml")


def compare(
    reference: str | Path,
    candidate: str | Path,
    *,
    feeds: Feeds = (),
    device: SessionDevice = "cpu",
    tolerance: str = "auto",
    sizes: Mapping[str, int] | None = None,
    seeds: int = 2,
    time_limit: float = 600.0,
    open_by: OpenBy = "provider",
    measures: Mapping[str, str] | None = None,
    metric: str | Metric | None = None,
    metric_bound: float | None = None,
    **where: Unpack[AdapterKeywords],
) -> Verdict:
    """Compare the outputs of ``candidate`` on a device with those of ``reference`` on the CPU.

    >>> dmlprep.compare("model.onnx", "out/model.onnx", sizes={"batch": 1}).outcome
    'passed'

    Args:
        reference: the original, which runs on the CPU.
        candidate: the prepared model.
        feeds: inputs: ``.npz`` files, ``NAME=file.npy``, folders, or arrays by input name. If empty, dmlprep generates
            inputs from seeds.
        device: the device for the candidate.
        tolerance: name of a tolerance (docs/parity.md), or ``rel:0.001``; ``auto`` chooses one by the types of both
            models and the device.
        sizes: sizes of free dimensions in generated inputs, by dimension name or by ``input:axis``.
        seeds: number of generated feeds, if ``feeds`` is empty.
        time_limit: limit in seconds for each load and each run.
        open_by: how to select DirectML on Windows: ``provider`` as classic apps do, ``device`` or ``policy`` as apps of
            Windows ML do.
        measures: kinds of outputs, by output name, where dmlprep detects the wrong kind: ``elements``, ``map``,
            ``classes``, ``logits`` or ``angle``.
        metric: your own measure, which decides instead of the tolerance: a function, or ``file.py:function``. It gets
            the outputs of both models on one feed, and returns a number, or a number and whether they pass.
        metric_bound: largest number that passes; needed if ``metric`` returns only a number.
        where: the DirectML device, as the fields of ``Adapter``: ``device_id``, ``adapter`` or ``gpu``. The last two
            need ``device="dml"``.

    Returns:
        the verdict. Its ``outcome`` is ``passed``, ``failed``, ``not-proven`` (these inputs prove nothing) or
        ``not-run``; ``reason`` says why, and ``device`` is the device that answered.

    Raises:
        InputError: a model or feed cannot be read or does not fit, or the metric fails.
        UsageError: the tolerance or the device is unknown, the inputs are too large to generate, or ``where`` does not
            choose one device.
        CheckNotRun: no GPU matches ``gpu``.
        ModelRefused, ToolFailed: the model is not supported, exceeds a safety limit, or crashes onnx.
    """
    from dmlprep.parity.judging import JudgingOptions
    from dmlprep.pipeline.proof import compare_models
    from dmlprep.pipeline.recipe import ParitySettings

    check_device(device)
    return compare_models(
        user_path(reference),
        user_path(candidate),
        ParitySettings(tolerance=tolerance, sizes=dict(sizes or {}), seeds=seeds, time_limit=time_limit),
        feeds=feeds,
        device=device,
        session=Adapter(**where).resolve(device, time_limit=time_limit, open_by=open_by),
        judging_options=JudgingOptions(dict(measures or {}), "auto", user_metric(metric, metric_bound)),
    )


def bisect(
    reference: str | Path,
    candidate: str | Path | None = None,
    *,
    feeds: Feeds = (),
    device: SessionDevice | None = None,
    tolerance: str = "auto",
    sizes: Mapping[str, int] | None = None,
    optimization: Optimization = "all",
    unfused: bool = False,
    matrix: bool = False,
    time_limit: float = 600.0,
    out: str | Path | None = None,
    force: bool = False,
    along: bool = False,
    progress: Progress = lambda share, text: None,
    **where: Unpack[AdapterKeywords],
) -> Bisection:
    """Find the first node at which ``candidate`` on a device and ``reference`` on the CPU differ, on the same feed.

    >>> found = dmlprep.bisect("model.onnx", "out/model.onnx", sizes={"batch": 1})
    >>> (found.outcome, found.nodes)
    ('agree', [])

    Args:
        reference: the original, which runs on the CPU.
        candidate: the model to compare; ``None``: ``reference`` itself, to find where the device differs from the CPU.
        feeds, tolerance, sizes, time_limit, where: as in ``compare``; only the first feed is used.
        device: device for the candidate; ``None`` is ``dml`` for one model, ``cpu`` for two.
        optimization: graph optimisation level of the candidate's sessions.
        unfused: True to let DirectML run each node separately.
        matrix: True to try the whole candidate first under each optimisation and fusion setting.
        out: folder for files that reproduce the fault: a model of the nodes, its inputs and expected outputs, a script,
            the draft of an issue, and the record. ``None``, or ``outcome`` other than ``found``, writes nothing.
        force: True to replace existing files in ``out``.
        along: True to compare values along the whole model even if the models agree, for the chart of
            ``render_record``.
        progress: called with the share done (0 to 1) and a text about the current work.

    Returns:
        the result. ``outcome`` is ``agree``, ``found`` or ``not-run``; ``nodes`` has the names of the nodes, and
        ``render_record`` renders it.

    Raises:
        InputError: a model or feed cannot be read, or does not fit, or the models have no outputs in common.
        OutputError: ``out`` contains such files and ``force`` is False, or cannot be written.
        UsageError: the tolerance or the device is unknown, the inputs are too large to generate, or ``where`` does not
            choose one device.
        CheckNotRun: no values can be generated for an input, or no GPU matches ``gpu``.
        ModelRefused, ToolFailed: the model is not supported, exceeds a safety limit, or crashes onnx.
    """
    from dmlprep.parity import load_feeds
    from dmlprep.parity.bisection.bisect import bisect as run

    on = device or ("dml" if candidate is None else "cpu")
    check_device(on)
    return run(
        user_path(reference),
        user_path(candidate if candidate is not None else reference),
        load_feeds(feeds) or None,
        device=on,
        tolerance=tolerance,
        session=Adapter(**where).resolve(on, optimization=optimization, unfused=unfused, time_limit=time_limit),
        sizes=sizes,
        matrix=matrix,
        out=user_path(out, OutputError) if out is not None else None,
        force=force,
        along=along,
        progress=progress,
    )


def bench(
    *models: str | Path,
    feeds: Feeds = (),
    device: SessionDevice = "cpu",
    pins: Mapping[str, int] | None = None,
    sizes: Mapping[str, int] | None = None,
    seconds: float = 10.0,
    runs: int = 10,
    time_limit: float = 600.0,
    progress: Progress = lambda share, text: None,
    **where: Unpack[AdapterKeywords],
) -> Bench:
    """Time models on a device, in turns and on the same inputs (docs/speed.md).

    >>> found = dmlprep.bench("model.onnx", "out/model.onnx", sizes={"batch": 1}, seconds=0.1, runs=1)
    >>> found.exit_code
    0

    Args:
        models: the models. All are loaded at the same time, each in its own process. A model may be listed twice.
        feeds, sizes, time_limit, where: as in ``compare``; only the first feed is used.
        device: the device for all models.
        pins: sizes of free dimensions that the sessions fix, by dimension name or by ``input:axis``; generated inputs
            have these sizes too.
        seconds: total time in seconds for the timed runs of all models.
        runs: smallest number of timed runs of each model, even if they take longer than ``seconds``.
        progress: called with the share done (0 to 1) and a text about the current work.

    Returns:
        times, memory and placement of each model, and its time as a multiple of the first model's. On a GPU, ``bound``
        is the least time of a run. If a model did not load or run, its ``not_run`` has the reason, and ``exit_code`` is
        3. ``render_record`` renders the result.

    Raises:
        InputError: a model or feed cannot be read, or does not fit.
        UsageError: no model is passed, ``runs`` is below 1, ``seconds`` is negative, the device is unknown, the inputs
            are too large to generate, or ``where`` does not choose one device.
        CheckNotRun: the device or GPU is not available, or no values can be generated for an input.
        ModelRefused, ToolFailed: the model is not supported, exceeds a safety limit, or crashes onnx.
    """
    start_worker()
    from dmlprep.parity.bench import BenchRequest
    from dmlprep.parity.bench import bench as run

    check_device(device)
    if runs < 1 or not seconds >= 0:
        raise UsageError("bench needs at least one run, and no negative time", where="runs, seconds", fix="pass more")
    paths = [user_path(model) for model in models]
    session = Adapter(**where).resolve(device, time_limit=time_limit)
    sized = (dict(pins or {}), dict(sizes or {}))
    return run(BenchRequest(paths, feeds, device, session, *sized, seconds, runs, progress))


def make_feeds(
    path: str | Path,
    sources: Sequence[str | Path],
    *,
    out: str | Path,
    count: int = 4,
    input: str = "",
    sizes: Mapping[str, int] | None = None,
    values: Mapping[str, Array | Path] | None = None,
    pictures: Pictures | None = None,
    rate: int | None = None,
    tokenizer: str | Path | None = None,
    force: bool = False,
) -> WrittenFeeds:
    """Write feeds (inputs of a model) made from pictures, sound or text, one ``.npz`` file each (docs/feeds.md).

    Args:
        path: the model; its inputs determine names, layout, sizes and types.
        sources: files of one kind, or folders of them.
        out, force: folder for the feeds (pass it as ``feeds=[out]`` to other functions), and whether to replace its
            files.
        count: largest number of feeds, taken evenly from all files, or from all lines of text.
        input: name of the input for the sources, if several fit.
        sizes: sizes of free dimensions, by name or by ``input:axis``.
        values: values of other inputs by name: arrays, or ``Path`` of ``.npy`` files. All further inputs are
            synthetic.
        pictures: layout, mean, deviation, scale, order of channels and fit (``dmlprep.api.types.Pictures``).
        rate: sample rate of the model's sound input in Hz; by default the rate that the model itself compares with, or
            that of the files.
        tokenizer: path of the ``tokenizer.json``; by default the one next to the model or the text.

    Returns:
        the written files (``files``), the shapes by input (``shapes``), and the names of synthetic inputs (``seeded``).

    Raises:
        InputError: the model, a file or a value cannot be read, or does not fit.
        UsageError: not exactly one input fits the files, a setting does not fit; or Pillow, soundfile or tokenizers is
            not installed.
        OutputError: ``out`` contains feeds and ``force`` is False, or it cannot be written.
        CheckNotRun: no values can be generated for another input.
        ModelRefused, ToolFailed: the model is not supported, exceeds a safety limit, or crashes onnx.
    """
    from dmlprep.parity import load_feeds
    from dmlprep.parity.feeds.sources import FeedsRequest, Pictures, feeds_from

    arrays: dict[str, Array] = {}
    for name, value in (values or {}).items():
        arrays |= load_feeds([f"{name}={value}"])[0] if isinstance(value, Path) else {name: value}
    return feeds_from(
        FeedsRequest(
            user_path(path),
            [user_path(source) for source in sources],
            user_path(out, OutputError),
            count=count,
            input=input,
            sizes=dict(sizes or {}),
            values=arrays,
            pictures=pictures or Pictures(),
            rate=rate,
            tokenizer=user_path(tokenizer) if tokenizer is not None else None,
            force=force,
        )
    )
