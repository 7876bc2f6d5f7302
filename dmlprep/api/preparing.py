"""Make a model ready for DirectML, at one size or at the few that cover what an app sees."""

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
    from dmlprep.pipeline.recipe import Plan, Recipe

__all__ = ["Progress", "cover_sizes", "prepare", "prepare_buckets", "read_sizes", "user_metric"]


def _recipe_metric(recipe: Recipe) -> NamedMetric | None:
    """The metric that a recipe names, or a setting of it."""
    from dmlprep.metrics import NamedMetric

    if not recipe.parity.metric:
        return None
    if recipe.name.startswith("@"):
        return NamedMetric(recipe.parity.metric, "the setting parity.metric")
    return NamedMetric(recipe.parity.metric, recipe.name, Path(recipe.name).parent)


def user_metric(
    metric: str | Metric | NamedMetric | None,
    bound: float | None,
    plan: Plan | None = None,
    observer: Observer | None = None,
) -> UserMetric | None:
    """The user's measure, else the recipe's, whose path is relative to the recipe.

    Args:
        observer: is told of code that a file names, before it runs.
    """
    from dmlprep.metrics import NamedMetric, UserMetric, load_metric

    if metric is None and plan is not None and (metric := _recipe_metric(plan.recipe)) is not None:
        bound = bound if bound is not None else plan.recipe.parity.metric_bound
    if isinstance(metric, NamedMetric):
        if observer is not None:
            observer.runs_code(metric.by, metric.code)
        found = load_metric(metric.name, bound, metric.folder)
        return None if found is None else replace(found, named_by=metric.by)
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
        command_line: what the user typed, for the record.
        options: the fields of ``PrepareOptions``, such as ``recipe``, ``pins``, ``feeds`` and ``device``.

    Returns:
        the record; ``exit_code`` is 0 when the result is in place, 1 when a step refused or parity failed, 3 when a
        demanded check could not run. With 1 and 3 nothing was written.

    Raises:
        UsageError: the input, the output or the recipe is wrong, ``adapter`` names no adapter or several, or ``gpu``
            several.
        CheckNotRun: there is no GPU that ``gpu`` names; the message says what is missing.
    """
    from dmlprep.process.onnx_worker import door

    door.start()  # it gets ready while modules are imported here
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
    """Prepare a model at several sizes: a static graph a bucket, each proved, all with one data file (docs/buckets.md).

    Args:
        path: the model; never modified.
        out: folder for the models, their records, ``buckets.data`` and ``buckets.json``.
        buckets: sizes by dimension, the same dimensions in each.
        observer, command_line, options: as in ``prepare``; ``pins`` hold for every bucket, and the data is always
            external.

    Returns:
        the record of each bucket by its name, and what was written. ``exit_code`` is the worst of all: where it is not
        0, nothing was written.

    Raises:
        UsageError: as ``prepare``, naming the bucket; or the buckets contradict each other.
        CheckNotRun: as ``prepare``.
    """
    from dmlprep.process.onnx_worker import door

    door.start()
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
    made = plan(options.recipe, pins=options.pins, target=options.target, settings=settings)
    metric = user_metric(options.metric, options.metric_bound, made, observer)
    request = PrepareRequest(
        source=Path(path),
        out=Path(out),
        plan=made,
        options=options,
        feeds=load_feeds(options.feeds),
        session=session,
        metric=metric,
        read=[*feed_files(options.feeds), *([metric.file] if metric and metric.file else [])],
        command_line=command_line,
        observer=observer or Observer(),
    )
    _ = request.vram  # a size that cannot be read is an error before anything is opened
    return request


def read_sizes(log: str | Path, *, dims: Sequence[str] = ()) -> Sizes:
    """The sizes in a log, and how often each was asked for (docs/buckets.md).

    Args:
        log: a request a line: ``height=480 width=640``, a JSON object, or CSV with a first line of names.
        dims: names to read; then whatever else a line holds is left out.

    Returns:
        the names of the dimensions, and how often each size was asked for.

    Raises:
        InputError: the file cannot be read, or a line is wrong; the message says which.
    """
    from dmlprep.pipeline.buckets import read_log

    return read_log(Path(log), dims)


def cover_sizes(sizes: Sizes, *, waste: float | None = None, count: int | None = None, multiple: int = 1) -> Cover:
    """The few buckets that cover all sizes: few within a waste, or a number that waste little.

    Args:
        sizes: as of ``read_sizes``.
        waste: elements after padding over those that were asked for, of all requests together; 1.3 where neither it
            nor ``count`` is given.
        count: buckets at most, in its place.
        multiple: what the buckets' sizes must be a multiple of.

    Returns:
        the buckets, the smallest first, with their waste; ``optimal`` is true for one dimension only.

    Raises:
        UsageError: both are given, one is out of range, or no set of 64 buckets wastes so little.
    """
    from dmlprep.pipeline.buckets import cover, cover_within

    if waste is not None and count is not None:
        raise UsageError("a waste and a number of buckets are asked for", where="waste", fix="leave out one of the two")
    if count is not None:
        return cover(sizes.counts, count, multiple)
    return cover_within(sizes.counts, 1.3 if waste is None else waste, multiple)
