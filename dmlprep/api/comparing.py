"""Compare models: their outputs, the first node that differs, and their times; and make inputs from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from dmlprep.api.preparing import Progress, start_worker, user_metric
from dmlprep.pipeline.options import Adapter, AdapterKeywords, Feeds, Metric
from dmlprep.record import Verdict
from dmlprep.record.aliases import SessionDevice

if TYPE_CHECKING:
    from dmlprep.parity.bisection.finding import Bisection
    from dmlprep.parity.feeds.sources import Pictures, WrittenFeeds
    from dmlprep.portable.arrays import Array
    from dmlprep.record.speed import Bench
    from dmlprep.runtime.types import OpenBy, Optimization


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
        reference, candidate: the original, which runs on the CPU, and the prepared model.
        device: the device for the candidate.
        feeds, metric, metric_bound, where: as in ``prepare``.
        tolerance: name of a tolerance (docs/parity.md); ``auto`` is that of FP16 if the candidate has FP16 weights.
        sizes: sizes of free dimensions of synthetic feeds, by name.
        seeds: number of seeded feeds if there are no others.
        time_limit: seconds for one load or run.
        open_by: how to select DirectML on Windows: ``provider`` as classic apps do, ``device`` or ``policy`` as apps of
            Windows ML do.
        measures: kinds of outputs that dmlprep detects wrongly: ``elements``, ``map``, ``classes``, ``logits``.

    Returns:
        the verdict: ``passed``, ``failed``, ``not-proven`` or ``not-run``, with the device that answered.

    Raises:
        InputError: a model or feed cannot be read, or does not fit.
        UsageError: ``adapter`` or ``gpu`` is not exactly one device.
        CheckNotRun: no GPU has the name in ``gpu``.
    """
    from dmlprep.parity.judging import JudgingOptions
    from dmlprep.pipeline.proof import compare_models
    from dmlprep.pipeline.recipe import ParitySettings

    return compare_models(
        Path(reference),
        Path(candidate),
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
    """Find the first node at which ``candidate`` on a device and ``reference`` on the CPU differ, on the same input.

    >>> found = dmlprep.bisect("model.onnx", "out/model.onnx", sizes={"batch": 1})
    >>> (found.outcome, found.nodes)
    ('agree', [])

    Args:
        reference: the original, which runs on the CPU.
        candidate: ``None``: the same model, to find where the device differs from the CPU.
        feeds, tolerance, sizes, time_limit, where: as in ``compare``; of several feeds the first.
        device: device for the candidate; ``None`` is ``dml`` for one model, ``cpu`` for two.
        optimization: graph optimisation level of the candidate's sessions.
        unfused: DirectML runs each node separately.
        matrix: first try the whole candidate under each optimisation and fusion setting.
        out: folder for a model of the nodes, its inputs and expected outputs, a script, a draft of an issue and the
            record; ``None`` writes nothing.
        force: replace existing files.
        along: compare values along the whole model even if the models agree, for the picture of ``render_record``.
        progress: called with the share done (0 to 1) and the current work.

    Returns:
        the result: ``outcome`` is ``agree``, ``found`` or ``not-run``; ``render_record`` shows it.

    Raises:
        InputError: a model or feed cannot be read, or does not fit, or the models have no outputs in common.
        OutputError: ``out`` has such files already, or cannot be written.
        UsageError: ``adapter`` or ``gpu`` is not exactly one device.
        CheckNotRun: an input cannot be synthesized, or no GPU has the name in ``gpu``.
    """
    from dmlprep.parity import load_feeds
    from dmlprep.parity.bisection.bisect import bisect as run

    on = device or ("dml" if candidate is None else "cpu")
    return run(
        Path(reference),
        Path(candidate if candidate is not None else reference),
        load_feeds(feeds) or None,
        device=on,
        tolerance=tolerance,
        session=Adapter(**where).resolve(on, optimization=optimization, unfused=unfused, time_limit=time_limit),
        sizes=sizes,
        matrix=matrix,
        out=Path(out) if out is not None else None,
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
    """Time models on a device, in turn and on the same inputs (docs/speed.md).

    >>> found = dmlprep.bench("model.onnx", "out/model.onnx", sizes={"batch": 1}, seconds=0.1, runs=1)
    >>> found.exit_code
    0

    Args:
        models: all of them are loaded together, each in its own worker. A model may be listed twice.
        device, feeds, sizes, time_limit, progress, where: as in ``bisect``.
        pins: sizes that the sessions override, by dimension name or by ``input:axis``; synthetic feeds have them too.
        seconds: total time for the runs of all models.
        runs: smallest number of timed runs of each model, even if they exceed ``seconds``.

    Returns:
        times, memory, placement, and each model's time as a multiple of the first one's. A model that did not load or
        run has the reason in ``not_run``, and makes ``exit_code`` 3. ``render_record`` shows it.

    Raises:
        InputError: a model or feed cannot be read, or does not fit.
        UsageError: ``adapter`` or ``gpu`` is not exactly one device, or there is no model.
        CheckNotRun: there is no such device or GPU here, or an input cannot be synthesized.
    """
    start_worker()
    from dmlprep.parity.bench import BenchRequest
    from dmlprep.parity.bench import bench as run

    paths = [Path(model) for model in models]
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
    """Make feeds from pictures, sound or text (docs/feeds.md), one ``.npz`` each.

    Args:
        path: the model, for names, layout, sizes and types.
        sources: files, or folders of them.
        out, force: folder for the feeds (``feeds=[out]`` of other functions), and whether to replace its files.
        count: number of feeds, taken evenly from all files, or lines of text.
        input: the input for the sources, if several are possible.
        sizes: sizes of free dimensions, by name or by ``input:axis``.
        values: other inputs, as arrays or ``.npy`` files; the rest is synthetic.
        pictures: layout, mean, deviation, scale, order of channels and fit (``dmlprep.api.types.Pictures``).
        rate: samples a second of the model; by default those of the files.
        tokenizer: the ``tokenizer.json``; by default the one next to the model or the text.

    Returns:
        the files, the shapes, and which inputs are synthetic.

    Raises:
        InputError: the model, a file or a value cannot be read, or does not fit.
        UsageError: not exactly one input fits the files; or Pillow, soundfile or tokenizers is not installed.
        OutputError: ``out`` has such files already, or cannot be written.
    """
    from dmlprep.parity import load_feeds
    from dmlprep.parity.feeds.sources import FeedsRequest, Pictures, feeds_from

    arrays: dict[str, Array] = {}
    for name, value in (values or {}).items():
        arrays |= load_feeds([f"{name}={value}"])[0] if isinstance(value, Path) else {name: value}
    return feeds_from(
        FeedsRequest(
            Path(path),
            [Path(source) for source in sources],
            Path(out),
            count=count,
            input=input,
            sizes=dict(sizes or {}),
            values=arrays,
            pictures=pictures or Pictures(),
            rate=rate,
            tokenizer=Path(tokenizer) if tokenizer is not None else None,
            force=force,
        )
    )
