"""Prepare one model at several sizes: one proved model for each bucket, and one data file for their large weights.

ONNX Runtime and onnx's checker accept no data file outside the model's folder (``../weights``), and no link to one. So
the models of all buckets are in one folder. They appear together with ``buckets.json``: all of them, or none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

import onnx_ir as ir

from dmlprep.core._version import __version__
from dmlprep.core.errors import DmlprepError, InputError, InternalError, OutputError, UsageError
from dmlprep.core.files import FileSet, check_path, unreadable
from dmlprep.core.files.links import is_plain_file
from dmlprep.core.files.outputs import check_replaceable, file_name_problem
from dmlprep.core.files.staging import PREFIX, clear_staging, staging_folder
from dmlprep.core.files.writing import plain_errors
from dmlprep.graph.model import Model
from dmlprep.graph.model.opening import check_name
from dmlprep.graph.model.shared_data import SharedData
from dmlprep.parity.feeds.sizes import Input, graph_inputs
from dmlprep.pipeline.prepare import PrepareRequest, Result, Sharing, prepare_aside
from dmlprep.portable.arrays import Array
from dmlprep.portable.bounds import MOST_BUCKETS
from dmlprep.portable.integrity import file_digest
from dmlprep.record import RunError, RunRecord
from dmlprep.record.buckets import BUCKETS, BucketEntry, BucketsFile, DataEntry
from dmlprep.record.fleet import worst

DATA = "buckets.data"


@dataclass(frozen=True)
class BucketRun:
    """The result of preparing a model at several sizes, called buckets.

    Attributes:
        records: the record of each bucket by its name.
        failed: names of buckets that failed; if there are any, no bucket is written.
        written: the content of ``buckets.json``; ``None`` if a bucket failed.
    """

    records: dict[str, RunRecord]
    failed: tuple[str, ...] = ()
    written: BucketsFile | None = None

    @property
    def exit_code(self) -> int:
        """The worst exit code of all buckets, in the order 70, 2, 1, 3, 0."""
        return worst(record.exit_code for record in self.records.values())


def bucket_name(sizes: Mapping[str, int]) -> str:
    """Return the name of a bucket, which begins the names of its files: ``batch1-height512-width512``."""

    def part(name: str, size: int) -> str:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        return f"{plain}{'_' if plain[-1:].isdigit() else ''}{size}"

    return "-".join(part(name, size) for name, size in sizes.items())


def check_buckets(buckets: Sequence[Mapping[str, int]], pins: Mapping[str, object]) -> dict[str, dict[str, int]]:
    """Check a list of buckets, each given by its sizes, and name them.

    Returns:
        the sizes of each bucket by its name, with the dimensions in the order of the first bucket.

    Raises:
        UsageError: there are none or too many, one has no sizes, or their dimensions differ. Two are equal or have the
            same name, a dimension is also in ``pins``, or a name is not a valid file name.
    """
    where = "--bucket"
    if not buckets or not all(buckets):
        raise UsageError("a bucket has no sizes", where=where, fix="write DIM=SIZE,DIM=SIZE (batch=1,height=512)")
    if len(buckets) > MOST_BUCKETS:
        fix = f"pass at most {MOST_BUCKETS}; prepare --bucket-log chooses the few that cover a log"
        raise UsageError(f"{len(buckets)} buckets are too many", where=where, fix=fix)
    names = list(buckets[0])
    if both := next((name for name in names if name in pins), ""):
        what = f"{both!r} has a size for all buckets, and one in each bucket"
        raise UsageError(what, where=where, fix="remove its --pin", code="DP204")
    by_name: dict[str, dict[str, int]] = {}
    for sizes in buckets:
        if set(sizes) != set(names):
            other = ", ".join(sorted(set(sizes) ^ set(names)))
            what = f"the buckets set different dimensions: {other} is missing in one bucket"
            raise UsageError(what, where=where, fix="set each dimension in every bucket")
        ordered = {name: sizes[name] for name in names}
        name = bucket_name(ordered)
        if name in by_name:
            raise UsageError(f"the bucket {name} is duplicated", where=where, fix="pass it once")
        if wrong := file_name_problem(f"{name}.run.json"):
            fix = "rename the dimensions in the model, or use INPUT:AXIS for them"
            raise UsageError(f"the bucket's file {name}.run.json {wrong}", where=where, fix=fix)
        by_name[name] = ordered
    return by_name


def prepare_buckets(
    source: Path,
    out: Path,
    buckets: Mapping[str, Mapping[str, int]],
    pinned: Callable[[Mapping[str, int]], PrepareRequest],
    *,
    force: bool = False,
) -> BucketRun:
    """Prepare a model once for each bucket; write all of them to ``out``, or nothing.

    Args:
        buckets: sizes by the bucket's name (``check_buckets``).
        pinned: a function that returns the request for the sizes of a bucket; its output path is not used.
        force: True to replace existing files.

    Returns:
        the run. All buckets are tried, even if one fails; then nothing is written.

    Raises:
        UsageError: as ``prepare``, and for a feed that fits no bucket. An error in one bucket names it.
        InternalError: as ``prepare``.
    """
    files = _check_out(source, out, buckets, force=force)
    records: dict[str, RunRecord] = {}
    results: dict[str, Result] = {}
    with staging_folder(out) as staging:
        data = SharedData(staging / DATA)
        for name, sizes in buckets.items():
            request = pinned(sizes)
            feeds = _fitting(source, request, buckets)[name]
            wanted = replace(request, out=out / f"{name}.onnx", sharing=Sharing(name, sizes, data), feeds=feeds)
            wanted.observer.notice(f"bucket {name}")
            try:
                records[name], result = prepare_aside(wanted, staging / wanted.out.name)
            except DmlprepError as error:
                if not isinstance(error, InternalError):
                    error.what = f"bucket {name}: {error.what}"
                raise
            if result is not None:
                results[name] = result
        run = BucketRun(records, tuple(name for name, record in records.items() if record.exit_code))
        if run.failed:
            _take_back(run)
            return run
        written = _listed(records, results, data)
        texts = {f"{name}.run.json": record.to_json() for name, record in records.items()}
        for name, text in {**texts, BUCKETS: written.to_json()}.items():
            with plain_errors(out / name):
                (staging / name).write_bytes(text)
        files.exchange({name: staging / name for name in (BUCKETS, *written.files)}, force=force)
    return replace(run, written=written)


def _fitting(
    source: Path, request: PrepareRequest, buckets: Mapping[str, Mapping[str, int]]
) -> dict[str, list[dict[str, Array]]]:
    """Return for each bucket, by its name, the user's feeds that have its sizes.

    A bucket with an empty list is proved on seeded feeds.

    Raises:
        InputError: a feed does not have the sizes of any bucket.
    """
    by_bucket: dict[str, list[dict[str, Array]]] = {name: [] for name in buckets}
    if not request.feeds:
        return by_bucket
    inputs = graph_inputs(Model.open(source))
    for index, feed in enumerate(request.feeds):
        fits = [name for name, sizes in buckets.items() if all(_fits(one, feed.get(one.name), sizes) for one in inputs)]
        if not fits:
            what = f"feed {index + 1} has the sizes of no bucket"
            fix = "pass feeds of the buckets' sizes; a bucket without feeds gets synthetic inputs"
            raise InputError(what, where=str(getattr(feed, "source", "feeds")), code="DP705", fix=fix)
        for name in fits:
            by_bucket[name].append(feed)
    return by_bucket


def _fits(one: Input, array: Array | None, sizes: Mapping[str, int]) -> bool:
    if array is None or one.dims is None or len(one.dims) != array.ndim:
        return True  # the run reports what is wrong with it
    wanted = [sizes.get(str(dim), sizes.get(f"{one.name}:{axis}")) for axis, dim in enumerate(one.dims)]
    return all(size is None or size == here for size, here in zip(wanted, array.shape, strict=True))


def _take_back(run: BucketRun) -> None:
    """Change the records of buckets that passed: they are not written either, because another bucket failed.

    They get the exit code of the whole run and an error that names the buckets that failed.
    """
    bad, code = run.failed, run.exit_code
    for record in run.records.values():
        record.output = ""
        if not record.exit_code:
            record.exit_code = code
            record.error = RunError(f"not written, although it passed: another bucket failed: {', '.join(bad)}")


def _check_out(source: Path, out: Path, buckets: Mapping[str, object], *, force: bool) -> FileSet:
    """Check that the files can be written, before the work begins; return all files that are replaced together.

    Remains of killed runs are repaired or removed.

    Raises:
        OutputError: the folder is a file, contains such files and ``force`` is False, or contains the input.
    """
    where = str(out)
    check_name(out, OutputError)
    if out.suffix.lower() == ".onnx":
        raise OutputError("buckets are several models, but this is one file", where=where, fix="pass a folder")
    if os.path.exists(out) and not os.path.isdir(out):
        raise OutputError("a file of this name exists", where=where, fix="pass a folder")
    names = [DATA, *(f"{name}{suffix}" for name in buckets for suffix in (".onnx", ".run.json"))]
    FileSet(out, BUCKETS, tuple(names)).recover()
    with suppress(InputError):  # An invalid list of buckets does not mark any file as dmlprep's.
        names += [name for name in _ours(out, BucketsFile.read(out / BUCKETS)) if name not in names]
    for name in names:
        path = out / name
        check_path(path, aside=PurePath(f"{PREFIX}12345678abcd") / name)
    for path in (out / name for name in (BUCKETS, *names)):
        if os.path.isdir(path):
            raise OutputError("this is a folder", where=str(path), fix="choose another name with -o")
        if not os.path.lexists(path):
            continue
        if path.suffix == ".onnx" and os.path.exists(source) and os.path.samefile(source, path):
            what, fix = "this is the input model, and input is never overwritten", "choose another folder with -o"
            raise OutputError(what, where=str(path), fix=fix)
        if not force:
            raise OutputError("the file exists", where=str(path), fix="pass --force to replace it")
        check_replaceable(path)
    clear_staging(out)
    return FileSet(out, BUCKETS, tuple(names))


def _ours(out: Path, old: BucketsFile) -> Iterator[str]:
    """Yield the names of models and records in ``out`` that an earlier run wrote, so that they may be replaced.

    The list ``old`` of that run could name any file. So a model counts only if it is a plain file with the name that
    dmlprep gives it, and with the digest in the list. A record counts if it has the model's digest.
    """
    for one in old.buckets:
        model, record = (f"{bucket_name(one.sizes)}{suffix}" for suffix in (".onnx", ".run.json"))
        if is_plain_file(out / model) and _digest(out / model) == one.sha256:
            yield model
        with suppress(InputError):
            if is_plain_file(out / record) and RunRecord.read(out / record).output_sha256 == one.sha256:
                yield record


def _digest(path: Path) -> str:
    try:
        return file_digest(path)[1]
    except OSError as error:
        raise unreadable(error, path) from error


def _listed(records: Mapping[str, RunRecord], results: Mapping[str, Result], data: SharedData) -> BucketsFile:
    entries = []
    for name, record in records.items():
        facts = record.facts.bucket
        assert facts is not None, "a run with a bucket records it"
        graph = results[name].model.ir.graph
        entries.append(
            BucketEntry(
                name=name,
                sizes=facts.sizes,
                file=f"{name}.onnx",
                sha256=record.output_sha256,
                record=f"{name}.run.json",
                inputs=_shapes(graph.inputs),
                outputs=_shapes(graph.outputs),
                data_bytes=facts.data_bytes,
                shared_bytes=facts.shared_bytes,
            )
        )
    return BucketsFile(
        format=1,
        made_by=f"dmlprep {__version__}",
        original_sha256=next(iter(records.values())).input_sha256,
        dimensions=list(entries[0].sizes),
        data=DataEntry(DATA, data.nbytes, data.sha256) if data.nbytes else None,
        buckets=entries,
    )


def _shapes(values: Sequence[ir.Value]) -> dict[str, list[int | str]]:
    return {
        value.name or "": [
            size if isinstance(size, int) else (size.value or f"{value.name}:{axis}")
            for axis, size in enumerate(value.shape)
        ]
        for value in values
        if value.shape is not None
    }
