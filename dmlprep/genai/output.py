"""Where a prepared folder goes: checked before the work, made aside, and put in its place as a whole."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO

from dmlprep.errors import InputError, OutputError
from dmlprep.files import FileSet, check_path, unreadable, unwritable
from dmlprep.files.outputs import check_replaceable
from dmlprep.files.staging import PREFIX, clear_staging
from dmlprep.model.opening import check_name
from dmlprep.record import RunRecord

__all__ = ["RECORD", "FolderOut", "copy_files", "digests"]

RECORD = "run.json"
_LONG_NAME = "model_with_a_name.onnx.data"
"""As long as the names of a folder's files are, for the check of its path."""


@dataclass(frozen=True)
class FolderOut:
    """The folder that a run writes.

    Attributes:
        old: names in it that an earlier run wrote.
    """

    path: Path
    old: tuple[str, ...] = ()

    @classmethod
    def check(cls, out: Path, source: Path, *, force: bool) -> FolderOut:
        """Fail before the work, not after it.

        Raises:
            OutputError: it is a file, holds something already, or lies in the folder that is given.
        """
        where = str(out)
        check_name(out, OutputError)
        check_path(out / _LONG_NAME, aside=PurePath(f"{PREFIX}12345678abcd") / "dml" / _LONG_NAME)
        if os.path.exists(out) and not os.path.isdir(out):
            raise OutputError("a file of this name exists", where=where, fix="name a folder")
        inside, given = Path(os.path.realpath(out)), Path(os.path.realpath(source))
        if inside == given or given in inside.parents or inside in given.parents:
            what = "this is the folder that is given, or one of the two lies in the other"
            raise OutputError(what, where=where, fix="name another folder with -o: what is given is never changed")
        for head in ("genai_config.json", RECORD):
            _recover(out, head)
        names = sorted(name for name in os.listdir(out) if not name.startswith(".dmlprep-")) if out.is_dir() else []
        if names and not force:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise OutputError(f"the folder holds {names[0]}{more}", where=where, fix="pass --force to replace them")
        for name in names:
            if (out / name).is_file():
                check_replaceable(out / name)
        if out.is_dir():
            clear_staging(out)
        return cls(out, _written_before(out))

    def exchange(self, made: Path, head: str) -> None:
        """Put everything in ``made`` into the folder, as one; what an earlier run wrote and is not made again goes.

        Args:
            head: the file without which the others are no result.

        Raises:
            OutputError: a file cannot be moved; the folder is as it was.
        """
        new = {name: made / name for name in os.listdir(made)}
        others = dict.fromkeys(name for name in (*new, *self.old) if name != head)
        FileSet(self.path, head, tuple(others)).exchange(new)


def _recover(out: Path, head: str) -> None:
    """Put back what a run that was killed had moved aside, where nothing but the folder tells of it."""
    aside = FileSet(out, head).aside
    with suppress(OSError):
        moved = [name for name in os.listdir(aside) if name not in (head, "old.json")]
        FileSet(out, head, tuple(moved)).recover()


def _written_before(out: Path) -> tuple[str, ...]:
    """Names that an earlier run wrote, by its record: a record can name any file, and only plain names count."""
    with suppress(InputError):
        facts = RunRecord.read(out / RECORD).facts.get("genai")
        written = facts.get("written") if isinstance(facts, Mapping) else None
        names = {str(name).split("/", 1)[0] for name in written} if isinstance(written, Mapping) else set[str]()
        if names:
            return tuple(sorted({RECORD, *(n for n in names if n not in ("", ".", "..") and "\\" not in n)}))
    return ()


def copy_files(files: Iterable[Path], source: Path, target: Path) -> list[str]:
    """Copy files of a folder byte for byte into another, with their places in it.

    Returns:
        their names with ``/``.

    Raises:
        InputError: a file cannot be read.
        OutputError: it cannot be written.
    """
    copied = []
    for file in files:
        name = file.relative_to(source)
        place = target / name
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(error, place) from error
        try:
            with file.open("rb") as read:
                _copy(read, place)
        except OSError as error:
            raise unreadable(error, file, fix="check the file and its permissions") from error
        copied.append(name.as_posix())
    return copied


def _copy(read: BinaryIO, place: Path) -> None:
    try:
        with place.open("xb") as write:
            shutil.copyfileobj(read, write, 1 << 20)
    except OSError as error:
        raise unwritable(error, place) from error


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder, by its place in it with ``/``."""
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            with path.open("rb") as file:
                found[path.relative_to(folder).as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return dict(sorted(found.items()))
