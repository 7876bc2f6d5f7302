"""Prepare a model for DirectML, at one size or at the few that cover an app's requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from dmlprep.api.recipes import plan
from dmlprep.core.errors import UsageError
from dmlprep.pipeline.options import Metric, PrepareKeywords, PrepareOptions
from dmlprep.record import RunRecord
from dmlprep.record.aliases import Progress

if TYPE_CHECKING:
    from dmlprep.metrics import NamedMetric, UserMetric
    from dmlprep.pipeline.buckets import Cover, Sizes
    from dmlprep.pipeline.buckets.preparing import BucketRun
    from dmlprep.pipeline.observer import Observer
    from dmlprep.pipeline.prepare import PrepareRequest
    from dmlprep.pipeline.recipe import Plan

__all__ = ["Progress", "cover_sizes", "prepare", "prepare_buckets", "read_sizes", "user_metric"]


def start_worker() -> None:
    """Start the worker for onnx's compiled code: it gets ready while modules are imported here."""
    from dmlprep.process.onnx_worker import door

    door.start()


def user_metric(
    metric: str | Metric | NamedMetric | None,
    bound: float | None,
    plan: Plan | None = None,
    observer: Observer | None = None,
) -> UserMetric | None:
    """Return the user's metric, or the recipe's, whose path is relative to it; ``observer`` is notified of its code."""
    from dmlprep.metrics import NamedMetric, UserMetric, load_metric

    if metric is None and plan is not None and (name := plan.recipe.parity.metric):
        bound = bound if bound is not None else plan.recipe.parity.metric_bound
        file = plan.recipe.name
        by, folder = ("the setting parity.metric", None) if file.startswith("@") else (file, Path(file).parent)
        metric = NamedMetric(name, by, folder)
    if isinstance(metric, NamedMetric):
        if observer is not None:
            observer.runs_code(metric.by, metric.code)
        loaded = load_metric(metric.name, bound, metric.folder)
        return None if loaded is None else replace(loaded, named_by=metric.by)
    if metric is None or isinstance(metric, str):
        return load_metric(metric or "", bound)
    return UserMetric(getattr(metric, "__name__", "metric"), metric, bound)


def prepare(
    path: str | Path,
    *,
    out: str | Path,
    observer: Observer | None = None,
    command_line: str = "",
    **options: Unpack[PrepareKeywords],
) -> RunRecord:
    """Make a model ready for DirectML, prove that it still computes the same, and write it.

    >>> record = dmlprep.prepare("model.onnx", out="fresh", pins={"batch": 1}, device="cpu")
    >>> [(str(verdict.check), verdict.outcome) for verdict in record.verdicts]
    [('parity on cpu', 'passed')]

    Args:
        path: the model; never modified.
        out: folder for ``model.onnx`` and ``run.json``, or a path that ends in ``.onnx``.
        observer: receives the progress of the run.
        command_line: the user's command line, for the record.
        options: the fields of ``PrepareOptions``, such as ``recipe``, ``pins``, ``feeds`` and ``device``.

    Returns:
        the record; ``exit_code`` is 0 if the result is in place, 1 if a step refused or parity failed, 3 if a required
        check could not run. With 1 and 3 nothing is written.

    Raises:
        UsageError: the input, the output or the recipe is wrong, or ``adapter`` or ``gpu`` is not exactly one device.
        CheckNotRun: no GPU has the name in ``gpu``; the message says what is missing.
    """
    start_worker()
    from dmlprep.pipeline.prepare import prepare as run

    return run(_request(path, out, PrepareOptions(**options), observer, command_line))


def prepare_buckets(
    path: str | Path,
    *,
    out: str | Path,
    buckets: Sequence[Mapping[str, int]],
    observer: Observer | None = None,
    command_line: str = "",
    **options: Unpack[PrepareKeywords],
) -> BucketRun:
    """Prepare a model at several sizes: a static graph for each bucket, all with one data file (docs/buckets.md).

    Args:
        path, observer, command_line, options: as in ``prepare``; ``pins`` apply to every bucket, and the data is
            always external.
        out: folder for the models, their records, ``buckets.data`` and ``buckets.json``.
        buckets: sizes by dimension, the same dimensions in each.

    Returns:
        the record of each bucket by its name, and what was written. ``exit_code`` is the worst of all: unless it is 0,
        nothing is written.

    Raises:
        UsageError, CheckNotRun: as in ``prepare``, with the bucket; or the buckets contradict each other.
    """
    start_worker()
    from dmlprep.pipeline.buckets.preparing import check_buckets
    from dmlprep.pipeline.buckets.preparing import prepare_buckets as run

    chosen = PrepareOptions(**options)
    named = check_buckets(buckets, chosen.pins)

    def pinned(sizes: Mapping[str, int]) -> PrepareRequest:
        return _request(path, out, replace(chosen, pins={**chosen.pins, **sizes}), observer, command_line)

    return run(Path(path), Path(out), named, pinned, force=chosen.force)


def _request(
    path: str | Path, out: str | Path, options: PrepareOptions, observer: Observer | None, command_line: str
) -> PrepareRequest:
    from dmlprep.parity import feed_files, load_feeds
    from dmlprep.pipeline.observer import Observer
    from dmlprep.pipeline.prepare import PrepareRequest

    settings = {**options.settings, **options.proof}
    session = options.resolve(options.device)
    resolved_plan = plan(options.recipe, pins=options.pins, target=options.target, settings=settings)
    metric = user_metric(options.metric, options.metric_bound, resolved_plan, observer)
    request = PrepareRequest(
        source=Path(path),
        out=Path(out),
        plan=resolved_plan,
        options=options,
        feeds=load_feeds(options.feeds),
        session=session,
        metric=metric,
        read=[*feed_files(options.feeds), *([metric.file] if metric and metric.file else [])],
        command_line=command_line,
        observer=observer or Observer(),
    )
    _ = request.vram  # a size that cannot be read is an error before any file is opened
    return request


def read_sizes(log: str | Path, *, dims: Sequence[str] = ()) -> Sizes:
    """Read the sizes in a log, and count the requests for each (docs/buckets.md).

    Args:
        log: one request in each line: ``height=480 width=640``, a JSON object, or CSV with a first line of names.
        dims: the names to read; empty: all.

    Returns:
        the names of the dimensions, and the number of requests for each size.

    Raises:
        InputError: the file cannot be read, or a line is wrong; the message has its number.
    """
    from dmlprep.pipeline.buckets import read_log

    return read_log(Path(log), dims)


def cover_sizes(sizes: Sizes, *, waste: float | None = None, count: int | None = None, multiple: int = 1) -> Cover:
    """Choose a few buckets that cover all sizes.

    Args:
        sizes: as returned by ``read_sizes``.
        waste: largest ratio of elements after padding to elements requested, over all requests; 1.3 without ``count``.
        count: largest number of buckets, instead of ``waste``.
        multiple: sizes of buckets are multiples of this.

    Returns:
        the buckets, the smallest first, with their waste; ``optimal`` is true for one dimension only.

    Raises:
        UsageError: both are set, one is out of range, or no set of 64 buckets wastes so little.
    """
    from dmlprep.pipeline.buckets import cover, cover_within

    if waste is not None and count is not None:
        raise UsageError("both a waste and a number of buckets are set", where="waste", fix="remove one of the two")
    if count is not None:
        return cover(sizes.counts, count, multiple)
    return cover_within(sizes.counts, 1.3 if waste is None else waste, multiple)
