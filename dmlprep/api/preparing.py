"""Make a model ready for DirectML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from dmlprep.api.arguments import user_metric
from dmlprep.api.recipes import plan
from dmlprep.options import PrepareKeywords, PrepareOptions
from dmlprep.record import RunRecord

if TYPE_CHECKING:
    from dmlprep.pipeline import Observer, PrepareRequest
    from dmlprep.pipeline.buckets import BucketRun

__all__ = ["prepare", "prepare_buckets"]


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
    from dmlprep.compiled import door

    door.start()  # it gets ready while modules are imported here
    from dmlprep.pipeline import prepare as run

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
    from dmlprep.compiled import door

    door.start()
    from dmlprep.pipeline.buckets import check_buckets
    from dmlprep.pipeline.buckets import prepare_buckets as run

    chosen = PrepareOptions(**options)
    named = check_buckets(buckets, chosen.pins)

    def pinned(sizes: Mapping[str, int]) -> PrepareRequest:
        return _request(path, out, replace(chosen, pins={**chosen.pins, **sizes}), observer, command_line)

    return run(Path(path), Path(out), named, pinned, force=chosen.force)


def _request(
    path: str | Path, out: str | Path, options: PrepareOptions, observer: Observer | None, command_line: str
) -> PrepareRequest:
    from dmlprep.parity import feed_files, load_feeds
    from dmlprep.pipeline import Observer, PrepareRequest

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
