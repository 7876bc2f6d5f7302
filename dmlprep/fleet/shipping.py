"""A job in a form that goes to a machine without its folders: the files that it reads, and the files that it makes.

Paths are written below a root, and stand below a folder of the worker's while the job runs; what the job wrote speaks
of the paths of the machine of the fleet again when it comes back.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dmlprep.errors import DmlprepError, InputError, UsageError
from dmlprep.files import Unfit, parse_json, read_given, remove, unreadable, unwritable
from dmlprep.fleet.digests import Digests
from dmlprep.fleet.engine import Ended, Task
from dmlprep.fleet.keys import Keys, feed_files, key_of, metric_of
from dmlprep.fleet.matrix import Job
from dmlprep.fleet.places import FILES, MODEL, RECORD, REPORT, Place
from dmlprep.fleet.run import arguments_of
from dmlprep.model import Model
from dmlprep.model.saving import Writer, write_file
from dmlprep.model.unchanged import data_files
from dmlprep.record.documents import to_json
from dmlprep.record.markup import html_text

__all__ = ["CHUNK", "MOST", "Parcel", "chunks", "pack", "run_parcel", "unpack"]

MOST = 4 << 30
"""Bytes of files that one job reads, or makes, and that are shipped: they stand in the memory of client and workers."""

CHUNK = 64 << 20
"""Bytes that are sent in one piece."""

_MARK = "parcel:"
"""Stands for the root in the paths of a job on its way."""

_RESULT = "record.json"
"""The record that the run leaves also where there is no result."""


@dataclass(frozen=True)
class Parcel:
    """What a worker is sent of a job, but for the bytes.

    Attributes:
        task: with the job's paths below ``_MARK``.
        root: folder above all files that the job reads, on the machine of the fleet; ends with a separator.
        folder: of the job's result, there.
        files: SHA-256 of each file, by its path below the root, with ``/``.
    """

    task: Task
    root: str
    folder: str
    files: Mapping[str, str]

    @property
    def record(self) -> Path:
        """Where the record of the job belongs, there."""
        return Path(self.task.arguments[self.task.arguments.index("--record") + 1])


def pack(task: Task) -> Parcel:
    """The parcel of a task that has a job.

    Raises:
        UsageError: its files are too large, or on several drives.
        InputError: a file cannot be read.
    """
    assert task.job is not None
    job = task.job
    paths = [Path(os.path.abspath(path)) for path in _read_by(job)]
    try:
        top = Path(os.path.commonpath([path.parent for path in paths]))
    except ValueError as error:
        fix = "share the folders with the workers (without --ship), or move the files to one drive"
        raise UsageError("a job's files are on several drives, and cannot be shipped", fix=fix) from error
    files, nbytes = {}, 0
    for path in paths:
        name = path.relative_to(top).as_posix()
        try:
            with path.open("rb") as file:
                nbytes += os.fstat(file.fileno()).st_size
                files[name] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise unreadable(error, path) from error
        _check(nbytes, "the files that the job reads")
    root = os.path.join(top, "")
    folder = task.arguments[task.arguments.index("-o") + 1]
    return Parcel(replace(task, job=_marked(job, top)), root, folder, files)


def chunks(parcel: Parcel, name: str) -> Iterable[bytes]:
    """The bytes of a file, in pieces.

    Raises:
        InputError: it cannot be read, or is not what it was when it was packed.
    """
    path = Path(parcel.root, name)
    sha = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(CHUNK):
                sha.update(piece)
                yield piece
    except OSError as error:
        raise unreadable(error, path) from error
    if sha.hexdigest() != parcel.files[name]:
        raise InputError("the file changed while it was shipped", where=str(path), fix="run the fleet again")


def run_parcel(
    parcel: Parcel, bodies: Mapping[str, Sequence[bytes]], run: Callable[[Task], Ended], room: Path
) -> tuple[Ended, dict[str, list[bytes]]]:
    """Run a job on a machine that sees none of its folders.

    Args:
        bodies: the pieces of each file of the parcel.
        run: runs a task whose files are here.
        room: folder for the job's files while it runs.

    Returns:
        how it ended, and the files that it made, in pieces, by their names; its record is among them.
    """
    with tempfile.TemporaryDirectory(prefix="dmlprep-job-", dir=room) as name:
        top = os.path.join(os.path.realpath(name), "in", "")
        for path, pieces in bodies.items():
            Path(top, path).parent.mkdir(parents=True, exist_ok=True)
            with Path(top, path).open("xb") as file:
                file.writelines(pieces)
        assert parcel.task.job is not None
        job = _changed(parcel.task.job, lambda text: text.replace(_MARK + "/", top, 1))
        folder, record = Path(top).parent / "out", Path(top).parent / _RESULT
        arguments = arguments_of(job, folder, record, fresh="--fresh" in parcel.task.arguments)
        Place(folder, Path()).begin(key_of(parcel.task.facts), force=True)
        ended = run(replace(parcel.task, job=job, arguments=arguments))

        theirs = {top: parcel.root, str(folder): parcel.folder, str(record): str(parcel.record)}

        def back(text: str, written: Callable[[str], str] = str) -> str:
            for ours, path in theirs.items():
                text = text.replace(ours, written(path))
            return text

        made: dict[str, list[bytes]] = {}
        for result in (record, *(folder / one for one in FILES)):
            if result.is_file():
                _check(result.stat().st_size, "a file that the job made")
                made[result.name] = _rewritten(result, back)
        return replace(ended, error=back(ended.error)), made


def unpack(parcel: Parcel, made: Mapping[str, Sequence[bytes]]) -> None:
    """Write what a worker made to the job's folder, and its record where the fleet looks for it.

    Raises:
        OutputError: it cannot be written.
    """
    folder = Path(parcel.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with Writer() as writer:
            for name in (*FILES[1:], FILES[0]):  # the model is their head
                if name in made:
                    writer.open(folder / name).writelines(made[name])
            writer.commit()
        for name in FILES:
            if MODEL in made and name not in made:
                remove(folder / name)  # of an earlier result
    except OSError as error:
        raise unwritable(error, folder) from error
    if _RESULT in made:
        write_file(parcel.record, b"".join(made[_RESULT]))


def _read_by(job: Job) -> list[Path]:
    """Every file that a job reads."""
    found = [job.model, *(path for _, path in feed_files(job.given.get("feeds", ())))]
    with contextlib.suppress(DmlprepError):  # the run says what is wrong with it
        found += data_files(Model.open(job.model))
    if not job.recipe.startswith("@"):
        found.append(Path(job.recipe))
    file, _ = metric_of(job, Keys(Digests()).plan(job))
    if file is not None:
        found.append(file)
    return list(dict.fromkeys(found))


def _marked(job: Job, top: Path) -> Job:
    """The job with its paths below ``_MARK``."""

    def mark(text: str) -> str:
        return f"{_MARK}/{Path(os.path.abspath(text)).relative_to(top).as_posix()}"

    given = dict(job.given)
    if "feeds" in given:
        given["feeds"] = tuple(_feed(feed, mark) for feed in given["feeds"])
    if "metric" in given:
        file, colon, function = given["metric"].rpartition(":")
        given["metric"] = f"{mark(file)}{colon}{function}" if file else given["metric"]
    recipe = job.recipe if job.recipe.startswith("@") else mark(job.recipe)
    return replace(job, model=Path(mark(str(job.model))), recipe=recipe, given=given)


def _feed(feed: str, mark: Callable[[str], str]) -> str:
    if Path(feed).exists() or "=" not in feed:
        return mark(feed)
    name, _, file = feed.rpartition("=")
    return f"{name}={mark(file)}"


def _changed(job: Job, change: Callable[[str], str]) -> Job:
    given = {**job.given}
    if "feeds" in given:
        given["feeds"] = tuple(map(change, given["feeds"]))
    if "metric" in given:
        given["metric"] = change(given["metric"])
    return replace(job, model=Path(change(job.model.as_posix())), recipe=change(job.recipe), given=given)


def _rewritten(file: Path, back: Callable[..., str]) -> list[bytes]:
    """The pieces of a file, with the paths of the machine of the fleet in a record or a report."""
    if file.name in (RECORD, _RESULT):
        return [to_json(_walked(_document(file), back))]
    if file.name == REPORT:
        return [back(file.read_text(encoding="utf-8"), html_text).encode()]
    with file.open("rb") as opened:
        return list(iter(lambda: opened.read(CHUNK), b""))


def _document(file: Path) -> Any:
    try:
        return parse_json(read_given(file), dict[str, Any])
    except OSError as error:
        raise unreadable(error, file) from error
    except Unfit as error:
        raise InputError(f"not a run record: {error}", where=str(file), fix=error.fix) from error


def _walked(value: Any, change: Callable[[str], str]) -> Any:
    """Plain values with every text changed, names of fields too: digests stand by path."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_walked(one, change) for one in value]
    if isinstance(value, dict):
        return {change(name): _walked(one, change) for name, one in value.items()}
    return value


def _check(nbytes: int, what: str) -> None:
    if nbytes > MOST:
        fix = "share the folders with the workers, and leave --ship out"
        raise UsageError(f"{what} has more than {MOST >> 30} GiB, which is not shipped", fix=fix)
