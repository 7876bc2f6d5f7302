"""Prepare a model for DirectML, at one size or at several sizes that cover an app's requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from dmlprep.api.recipes import plan
from dmlprep.core.errors import OutputError, UsageError
from dmlprep.core.files import user_path
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
    """Start the child process for onnx's compiled code, so that it gets ready while this process imports modules."""
    from dmlprep.process.onnx_worker import door

    door.start()


def user_metric(
    metric: str | Metric | NamedMetric | None,
    bound: float | None,
    plan: Plan | None = None,
    observer: Observer | None = None,
) -> UserMetric | None:
    """Load a metric: ``metric``, otherwise the one in the recipe of ``plan``; return ``None`` without either.

    Args:
        metric: a function, ``file.py:function``, or a name from a project file.
        bound: the largest value that passes; ``None``: the recipe's, if the metric is the recipe's.
        plan: the plan whose recipe may name a metric; a path in a recipe file is relative to that file.
        observer: notified before code runs that a recipe or a project file names.
    """
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
        out: folder for ``model.onnx`` and the record ``run.json``; or a path that ends in ``.onnx`` for the model, with
            the record next to it as ``.run.json``.
        observer: notified of each step and check of the run (``dmlprep.api.types.Observer``).
        command_line: the user's command line, to be noted in the record.
        options: the fields of ``PrepareOptions``, such as ``recipe``, ``pins``, ``feeds`` and ``device``.

    Returns:
        the record. ``exit_code`` is 0 if the result is in place; 1 if the model was refused, or parity failed. It is 3
        if a required check could not run or proved nothing. With 1 and 3 nothing is written.

    Raises:
        UsageError: the input, the output, the recipe or an option is wrong, or ``adapter`` or ``gpu`` does not choose
            one device.
        CheckNotRun: no GPU matches ``gpu``; the message says what is missing.
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
    """Prepare a model at several sizes: one static model for each bucket (docs/buckets.md).

    A bucket is one set of sizes for the free dimensions. Weights that are not small are in one file for all models.

    Args:
        path, observer, command_line, options: as in ``prepare``; ``pins`` apply to every bucket.
        out: folder for the models, their records, the list ``buckets.json``, and ``buckets.data`` with weights that are
            not small.
        buckets: for each bucket its sizes by dimension name; all have the same dimensions.

    Returns:
        the record of each bucket by its name (``records``), the names of those that ``failed``, and the content of
        ``buckets.json`` (``written``). ``exit_code`` is the worst of all; unless it is 0, nothing is written.

    Raises:
        UsageError, CheckNotRun: as in ``prepare``, and the message names the bucket; or the buckets contradict each
            other.
    """
    start_worker()
    from dmlprep.pipeline.buckets.preparing import check_buckets
    from dmlprep.pipeline.buckets.preparing import prepare_buckets as run

    chosen = PrepareOptions(**options)
    named = check_buckets(buckets, chosen.pins)

    def pinned(sizes: Mapping[str, int]) -> PrepareRequest:
        return _request(path, out, replace(chosen, pins={**chosen.pins, **sizes}), observer, command_line)

    return run(user_path(path), user_path(out, OutputError), named, pinned, force=chosen.force)


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
        source=user_path(path),
        out=user_path(out, OutputError),
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
    """Read the input sizes that an app logged, and count the requests for each (docs/buckets.md).

    Args:
        log: a file with one request in each line: ``height=480 width=640``, a JSON object, or CSV with a first line of
            names.
        dims: names of the dimensions to read; empty: all.

    Returns:
        the names of the dimensions (``names``), and the number of requests for each size (``counts``).

    Raises:
        InputError: the file cannot be read, or a line is wrong; the message has its number.
    """
    from dmlprep.pipeline.buckets import read_log

    return read_log(user_path(log), dims)


def cover_sizes(sizes: Sizes, *, waste: float | None = None, count: int | None = None, multiple: int = 1) -> Cover:
    """Choose a few buckets (sets of sizes) such that each requested size fits into one after padding.

    Args:
        sizes: the result of ``read_sizes``.
        waste: limit for the elements after padding divided by the elements before, over all requests. Default: 1.3,
            unless ``count`` is set.
        count: largest number of buckets, instead of ``waste``.
        multiple: each size of a bucket is a multiple of this.

    Returns:
        the buckets, the smallest first, with their waste. ``optimal`` is True if no other set of buckets is better; it
        is never True for several dimensions.

    Raises:
        UsageError: ``waste`` and ``count`` are both set, an argument is out of range, or no set of 64 buckets wastes so
            little.
    """
    from dmlprep.pipeline.buckets import cover, cover_within

    if waste is not None and count is not None:
        raise UsageError("both a waste and a number of buckets are set", where="waste", fix="remove one of the two")
    if count is not None:
        return cover(sizes.counts, count, multiple)
    return cover_within(sizes.counts, 1.3 if waste is None else waste, multiple)
