"""The output folder of a language model: checked before the work, written in a staging folder, and moved as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from dmlprep.core.errors import InputError, OutputError
from dmlprep.core.files import FileSet, check_path
from dmlprep.core.files.links import is_plain_file, leads_elsewhere
from dmlprep.core.files.outputs import check_replaceable, file_name_problem
from dmlprep.core.files.reasons import pieces
from dmlprep.core.files.staging import PREFIX, clear_staging
from dmlprep.core.files.writing import plain_errors
from dmlprep.graph.model.opening import check_name
from dmlprep.portable.integrity import file_digest
from dmlprep.record import RunRecord

RECORD = "run.json"
_LONG_NAME = "model_with_a_name.onnx.data"
"""A file name as long as those that a run writes, to check the length of paths."""


@dataclass(frozen=True)
class FolderOut:
    """The folder that a run writes.

    Attributes:
        written: SHA-256 of the files that an earlier run wrote, by their paths in the folder; from that run's record.
    """

    path: Path
    written: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def check(cls, out: Path, source: Path, *, folders: Iterable[str], force: bool) -> FolderOut:
        """Check, before the work begins, that a run can write the folder ``out``, and return it.

        Remains of killed runs in ``out`` are recovered or removed.

        Args:
            source: the input folder.
            folders: names of subfolders that the run creates.
            force: True to accept a folder that is not empty.

        Raises:
            OutputError: ``out`` is a file or no valid path, is not empty without ``force``, or is or contains the input
                folder or is inside it. Or one of ``folders`` exists in ``out``, and no run wrote it, or it was changed.
        """
        where = str(out)
        check_name(out, OutputError)
        check_path(out / _LONG_NAME, aside=PurePath(f"{PREFIX}12345678abcd") / "dml" / _LONG_NAME)
        if os.path.exists(out) and not os.path.isdir(out):
            raise OutputError("a file of this name exists", where=where, fix="pass a folder")
        inside, origin = Path(os.path.realpath(out)), Path(os.path.realpath(source))
        if inside == origin or origin in inside.parents or inside in origin.parents:
            what = "this is the input folder, or one of the two is inside the other"
            raise OutputError(what, where=where, fix="choose another folder with -o: dmlprep never changes the input")
        for head in ("genai_config.json", RECORD):
            FileSet(out, head).recover()
        names = sorted(name for name in os.listdir(out) if not name.startswith(".dmlprep-")) if out.is_dir() else []
        if names and not force:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            fix = "pass --force to replace files that this run writes"
            raise OutputError(f"the folder contains {names[0]}{more}", where=where, fix=fix)
        for name in names:
            if (out / name).is_file():
                check_replaceable(out / name)
        if out.is_dir():
            clear_staging(out)
        folder = cls(out, _written_before(out))
        for name in folders:
            if os.path.lexists(out / name) and not folder._is_own(name):
                what = "dmlprep did not write this, or it was changed since: it is not replaced"
                raise OutputError(what, where=str(out / name), fix="move it away, or choose another folder with -o")
        return folder

    def exchange(self, source: Path, head: str, *, force: bool) -> None:
        """Move all files and folders in ``source`` into this folder, atomically.

        Files of an earlier run that this run did not write again are removed, unless they were changed.

        Args:
            head: the file without which the others are not a result.
            force: True to replace existing plain files; folders are replaced only if they are unchanged.

        Raises:
            OutputError: a file exists without ``force``, or cannot be moved; the folder is unchanged.
        """
        new = {name: source / name for name in os.listdir(source)}
        before = dict.fromkeys(name.split("/", 1)[0] for name in self.written)
        own = [n for n in before if (n not in new or not is_plain_file(self.path / n)) and self._is_own(n)]
        others = dict.fromkeys(name for name in (*new, *own) if name != head)
        FileSet(self.path, head, tuple(others), folders=tuple(own)).exchange(new, force=force)

    def _is_own(self, name: str) -> bool:
        """Return True if a file, or a folder with its content, is unchanged since an earlier run wrote it.

        False for links, and for names that no run wrote.
        """
        if file_name_problem(name, anywhere=False):
            return False  # a record can name any file
        path = self.path / name
        digests = {file: sha for file, sha in self.written.items() if file.split("/", 1)[0] == name}
        try:
            if is_plain_file(path):
                return digests == {name: file_digest(path)[1]}
            if leads_elsewhere(os.lstat(path)):
                return False
            for parent, folders, names in os.walk(path):
                here = Path(parent)
                if any(leads_elsewhere(os.lstat(here / one)) for one in folders):
                    return False
                for one in names:
                    file = here / one
                    if (
                        not is_plain_file(file)
                        or digests.pop(file.relative_to(self.path).as_posix(), "") != file_digest(file)[1]
                    ):
                        return False
        except OSError:
            return False
        return not digests


def _written_before(out: Path) -> dict[str, str]:
    """Return the SHA-256 of the files that an earlier run wrote, from its record; empty without a record."""
    with suppress(InputError):
        facts = RunRecord.read(out / RECORD).facts.genai
        return facts.written if facts is not None else {}
    return {}


def copy_files(files: Iterable[Path], source: Path, target: Path) -> list[str]:
    """Copy files below the folder ``source`` to the same relative paths below the folder ``target``.

    Returns:
        the relative paths, with ``/``.

    Raises:
        InputError: a file cannot be read.
        OutputError: a file cannot be written, or exists.
    """
    copied = []
    for file in files:
        name = file.relative_to(source)
        place = target / name
        with plain_errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as write:
                write.writelines(pieces(file))
        copied.append(name.as_posix())
    return copied


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by its relative path with ``/``, sorted."""
    files = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)
    return dict(sorted((path.relative_to(folder).as_posix(), file_digest(path)[1]) for path in files))
