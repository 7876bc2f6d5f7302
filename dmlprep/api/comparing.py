"""Compare models: their outputs, the node where they part and their times, on inputs made from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from dmlprep.api.preparing import Progress, user_metric
from dmlprep.pipeline.options import Adapter, AdapterKeywords, Feeds, Metric
from dmlprep.record import Verdict
from dmlprep.record.aliases import SessionDevice

if TYPE_CHECKING:
    from dmlprep.parity.bisection.finding import Bisection
    from dmlprep.parity.feeds.sources import Made, Pictures
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
        reference: the original, which runs on the CPU.
        candidate: what came of it.
        device: where the candidate runs.
        feeds: as in ``prepare``.
        tolerance: name of a tolerance (docs/parity.md); ``auto`` is FP16's where the candidate holds FP16 weights.
        sizes: sizes for free dimensions, by name.
        seeds: how many seeded feeds where none are given.
        time_limit: seconds for one load or run.
        open_by: how DirectML is chosen, on Windows: by ``provider``, as classic applications do, or by ``device`` or
            ``policy``, as applications of Windows ML do.
        measures: outputs that are another kind than their makers tell: ``elements``, ``map``, ``classes``, ``logits``.
        metric, metric_bound: as in ``prepare``.
        where: ``device_id``, ``adapter`` or ``gpu``, as in ``Adapter``.

    Returns:
        the verdict: ``passed``, ``failed``, ``not-proven`` or ``not-run``, with the device that answered.

    Raises:
        InputError: a model or feed cannot be read, or does not fit.
        UsageError: ``adapter`` names no adapter or several, or ``gpu`` several.
        CheckNotRun: there is no GPU that ``gpu`` names.
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
        candidate: with one model, that model is the candidate as well: where does the device differ from the CPU?
        feeds: as in ``prepare``; the first one is used, a seeded one where there is none.
        device: where the candidate runs; ``None`` is ``dml`` for one model, ``cpu`` for two.
        where: ``device_id``, ``adapter`` or ``gpu``, as in ``Adapter``.
        tolerance, sizes: as in ``compare``.
        optimization: graph optimisation level of the candidate's sessions.
        unfused: DirectML runs each node by itself.
        matrix: first try the whole candidate under each optimisation and fusion setting.
        time_limit: seconds for one load or run.
        out: folder for the model of the nodes, its inputs and expected outputs, a script, an issue text and the record
            (``run.json``), where nodes are found; without one nothing is written.
        force: replace files that are there.
        along: where the models agree, compare values all along them as well, for the picture of ``render_record``: one
            more run of each.
        progress: is told the share done (0 to 1) and what is done.

    Returns:
        what was found: ``outcome`` is ``agree``, ``found`` or ``not-run``; ``nodes``, ``reason``, ``values``,
        ``along`` and ``files`` say more. ``render_record`` shows it.

    Raises:
        InputError: a model or feed cannot be read, or does not fit, or the models have no outputs in common.
        OutputError: ``out`` holds such files already, or cannot be written.
        UsageError: ``adapter`` names no adapter or several, or ``gpu`` several.
        CheckNotRun: feeds cannot be made up for an input, or there is no GPU that ``gpu`` names.
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
        models: all of them are loaded at once, each in a worker of its own. One may come twice.
        feeds: as in ``prepare``; the first one is used, a seeded one where there is none.
        device: where they run.
        where: ``device_id``, ``adapter`` or ``gpu``, as in ``Adapter``.
        pins: sizes that the sessions override, by dimension name or by ``input:axis``; made feeds have them too.
        sizes: sizes for free dimensions of made feeds, by name; the sessions know nothing of them.
        seconds: for the timed runs of all models together.
        runs: timed runs that each model gets at least, whatever that takes.
        time_limit: seconds for one load or run.
        progress: is told the share done (0 to 1) and what is done.

    Returns:
        times, memory, placement, and each model's time as a multiple of the first one's. A model that did not load or
        run says why in ``not_run``, and makes ``exit_code`` 3. ``render_record`` shows it.

    Raises:
        InputError: a model or feed cannot be read, or does not fit.
        UsageError: ``adapter`` names no adapter or several, ``gpu`` several, or there is no model.
        CheckNotRun: there is no such device or GPU here, or feeds cannot be made up for an input.
    """
    from dmlprep.process.onnx_worker import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.parity.bench import BenchRequest
    from dmlprep.parity.bench import bench as run

    return run(
        BenchRequest(
            [Path(model) for model in models],
            feeds,
            device,
            Adapter(**where).resolve(device, time_limit=time_limit),
            dict(pins or {}),
            dict(sizes or {}),
            seconds,
            runs,
            progress,
        )
    )


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
) -> Made:
    """Make feeds from pictures, sound or text (docs/feeds.md), one ``.npz`` each.

    Args:
        path: the model: names, layout, sizes and types are read from it.
        sources: files, or folders of them.
        out: folder for the feeds; ``feeds=[out]`` of the other functions takes it.
        count: how many; they are taken evenly from all files, or lines of text.
        input: the input that takes them, where several could.
        sizes: sizes for free dimensions, by name or by ``input:axis``.
        values: what other inputs get, as arrays or ``.npy`` files; those not named get made values.
        pictures: layout, mean, deviation, scale, order of channels and fit (``dmlprep.api.types.Pictures``).
        rate: samples a second that the model takes; by default those of the files.
        tokenizer: the ``tokenizer.json``; by default the one beside the model or the text.
        force: replace files that are there.

    Returns:
        the files, the shapes, and which inputs got made values.

    Raises:
        InputError: the model, a file or a value cannot be read, or does not fit.
        UsageError: no input, or several, can take the files; or Pillow, soundfile or tokenizers is not installed.
        OutputError: ``out`` holds such files already, or cannot be written.
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
