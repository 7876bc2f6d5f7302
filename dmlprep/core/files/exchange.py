"""Replace several files or folders atomically: a model, its data file and its record are always of one run.

The files of a set are in one folder. One of them is the head (``model.onnx``): without it the others are not a result.

1. Make a hidden folder ``.dmlprep-old-...`` next to them, with a list of the old and the new files.
2. Move the old files into it, the head first.
3. Move the new files to their places, the head last. Now the new set is complete.
4. Remove the hidden folder.

A failure in 2 or 3 (on Windows: a file is open in another program) moves everything back. If the process is killed in 2
or 3, the head is missing. Then the next start of any command, or the next run into this folder, restores the old set.
If it is killed in 4, that start or run removes the hidden folder. The process that made the hidden folder locks it, so
a second run does not treat it as a leftover. Files are not synced to disk, so a power failure can lose data.

The restore removes only what this exchange brought. The list identifies each new file by size and time, and each new
folder by inode. Anything else in these places stays, and the message reports it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from dmlprep.core.errors import OutputError
from dmlprep.core.files.bounded_read import Unfit, parse_json, read_given
from dmlprep.core.files.links import leads_elsewhere
from dmlprep.core.files.outputs import file_name_problem
from dmlprep.core.files.reasons import unwritable
from dmlprep.core.files.run_folder import noted, undoes
from dmlprep.portable.locks import LOCK, held, own_folder
from dmlprep.portable.replacing import remove, remove_tree, rename_new, replace

_LIST = "old.json"
_LIST_BYTES = 16 << 20

_Marks: TypeAlias = Mapping[str, list[int]]
"""For each new file, the facts that identify it after the move, as returned by ``_mark``."""


@dataclass(frozen=True)
class FileSet:
    """Files of one folder that belong together; without the ``head`` the others are not a result.

    Attributes:
        folder: the folder of all files.
        head: the name of the most important file, such as ``model.onnx``.
        others: the names of all other files of the set, whether they exist or not.
        folders: the names in ``others`` that may be folders, because the caller knows that dmlprep made them. Any other
            folder with a name of the set is an error.

    Raises:
        OutputError: a name is not valid for a file in the folder.
    """

    folder: Path
    head: str
    others: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (self.head, *self.others):
            if wrong := _name_problem(name):
                fix = "choose another name"
                raise OutputError(f"{name!r} cannot be written: the name {wrong}", where=str(self.folder), fix=fix)

    @property
    def aside(self) -> Path:
        """The hidden folder that contains the old files during the exchange."""
        return self.folder / f"{_ASIDE}{hashlib.sha256(self.head.encode('utf-8', 'replace')).hexdigest()[:12]}"

    def exchange(self, new: Mapping[str, Path], *, force: bool = True) -> None:
        """Replace the old set by ``new``; old files of the set without a new one are removed.

        First, restore the old set if an earlier run was killed while it replaced the set.

        Args:
            new: for each name, the path of the new file, on the same drive; it is moved. The head must be one of them.
            force: replace existing files. Otherwise an existing file is an error, even one that appears meanwhile.

        Raises:
            OutputError: a file exists without ``force``, another run is replacing the set, or a file cannot be moved.
                The old set is unchanged or restored; if it cannot be restored, the error names the folder that has it.
        """
        self.recover()
        with noted("exchange", folder=os.path.abspath(self.folder), head=self.head, others=list(self.others)):
            try:
                self.aside.mkdir()
            except FileExistsError as error:
                raise self._busy() from error
            except OSError as error:
                raise unwritable(error, self.folder / self.head) from error
            try:
                with held(self.aside) as mine:
                    if not mine:
                        raise self._busy()
                    self._swap(new, force)
            finally:
                self._discard()

    def recover(self) -> None:
        """Clean up if an earlier run was killed while it replaced the set; otherwise do nothing.

        If the new set is complete, the old files are removed. If not, the old set is restored.

        Raises:
            OutputError: another run is replacing it now, another program made a folder with the name of the hidden one,
                or a file cannot be moved.
        """
        if not os.path.lexists(self.aside):
            return
        if not own_folder(self.aside) or leads_elsewhere(os.lstat(self.aside)):
            what = "blocks a hidden folder of dmlprep, which has the same name; another program created it"
            raise OutputError(what, where=str(self.aside), fix="remove it, or choose another folder")
        with held(self.aside) as mine:
            if not mine:
                raise self._busy()
            old, marks = self._listed()
            if not self._complete(old, marks):
                self._put_back(old, marks)
            self._forget()
        self._discard()

    def _swap(self, new: Mapping[str, Path], force: bool) -> None:
        names = dict.fromkeys((self.head, *self.others))
        old = [name for name in names if os.path.lexists(self.folder / name)]
        if old and not force:
            raise self._exists(old[0])
        for name in old:
            if name not in self.folders and _is_folder(self.folder / name):
                raise OutputError("this is a folder", where=str(self.folder / name), fix="move it away")
        marks: dict[str, list[int]] = {}
        try:
            for name, path in new.items():
                with contextlib.suppress(OSError):  # a file is missing: the move reports it
                    marks[name] = _mark(os.lstat(path))
            (self.aside / _LIST).write_text(json.dumps({"old": old, "new": marks}), encoding="utf-8")
            for name in old:
                self._move(self.folder / name, self._backup(name), name)
            for name in (*(n for n in names if n in new and n != self.head), self.head):
                self._move(new[name], self.folder / name, name, new=not force)
        except BaseException as error:
            if not self._complete(old, marks):
                self._put_back(old, marks)
            self._forget()
            if isinstance(error, OSError):
                raise unwritable(error, self.folder / self.head) from error
            raise
        self._forget()

    def _backup(self, name: str) -> Path:
        """Return the path of an old file in the hidden folder; names equal to its lock or its list get a prefix."""
        return self.aside / (f".dmlprep-{name}" if name.casefold() in (LOCK, _LIST) else name)

    def _listed(self) -> tuple[list[str], dict[str, list[int]]]:
        """Return the names of the old files and the marks of the new ones, from the list in the hidden folder.

        The list may come from an untrusted program, so invalid names are dropped. Without a valid list: no names if the
        head exists, otherwise all names of the set; no marks.
        """
        try:
            listed = parse_json(read_given(self.aside / _LIST, _LIST_BYTES), dict[str, Any], lenient=True)
        except (FileNotFoundError, Unfit):
            listed = {}
        except OSError as error:
            raise unwritable(error, self.aside / _LIST) from error
        old, marks = listed.get("old"), listed.get("new")
        if isinstance(old, list) and isinstance(marks, dict):
            return [name for name in old if _is_name(name)], {n: m for n, m in marks.items() if _is_name(n)}
        # The run was killed before the first or after the last move. If the head exists, no file must be restored. If
        # not, another program removed it, and no file counts as new.
        return ([] if os.path.lexists(self.folder / self.head) else [self.head, *self.others]), {}

    def _forget(self) -> None:
        """Remove the list of files from the hidden folder. Without the list, the folder has no files to restore."""
        with contextlib.suppress(OSError):
            remove(self.aside / _LIST)

    def _discard(self) -> None:
        if not os.path.lexists(self.aside / _LIST):
            remove_tree(self.aside, ignore_errors=True)

    def _complete(self, old: list[str], marks: _Marks) -> bool:
        """Return whether the exchange is complete: the new head is in its place."""
        place = self.folder / self.head
        if _is_marked(place, marks.get(self.head)):
            return True
        # Another program has changed it since, or the list no longer exists.
        return os.path.lexists(place) and (os.path.lexists(self._backup(self.head)) or not (old or marks))

    def _put_back(self, old: list[str], marks: _Marks) -> None:
        """Move every old file to its place, the head last, and remove new files without an old one."""
        names = dict.fromkeys((*self.others, *old, *marks))
        for name in (*(name for name in names if name != self.head), self.head):
            place, backup = self.folder / name, self._backup(name)
            try:
                held_back = os.path.lexists(backup)
                if _is_marked(place, marks.get(name)) and (held_back or name not in old):
                    if _is_folder(place):
                        remove_tree(place)  # a rename cannot replace a folder
                    elif not held_back:
                        remove(place)
                    else:
                        replace(backup, place)
                        continue
                if held_back:
                    rename_new(backup, place)
            except OSError as error:
                wrong = unwritable(error, place)
                if isinstance(error, FileExistsError):
                    wrong.what, wrong.fix = "another program wrote this file during the run", "move it away"
                wrong.fix += f"; the old files are in {self.aside}; the next run into this folder restores them"
                raise wrong from error

    def _move(self, source: Path, target: Path, name: str, *, new: bool = False) -> None:
        try:
            (rename_new if new else replace)(source, target)
        except OSError as error:
            if new and isinstance(error, FileExistsError):
                raise self._exists(name) from error
            raise unwritable(error, self.folder / name) from error

    def _exists(self, name: str) -> OutputError:
        return OutputError("the file exists", where=str(self.folder / name), fix="pass --force to replace it")

    def _busy(self) -> OutputError:
        user = "by another run of dmlprep or a program that has its files open"
        what = f"cannot be replaced now: {self.aside.name} next to it is in use {user}"
        return OutputError(what, where=str(self.folder / self.head), fix="wait, then run again")


_ASIDE = ".dmlprep-old-"


def _name_problem(name: str) -> str:
    if name.startswith(_ASIDE):
        return "is reserved for a hidden folder of dmlprep"
    return file_name_problem(name, anywhere=False)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and not _name_problem(name)


def _is_folder(path: Path) -> bool:
    """Return whether the path is a folder itself, not a link to one."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and not leads_elsewhere(status)


def _mark(status: os.stat_result) -> list[int]:
    """Return the facts that identify a file after a rename: size and time, or the inode of a folder.

    The time of a folder may change, so it does not count.
    """
    return [status.st_ino] if stat.S_ISDIR(status.st_mode) else [status.st_size, status.st_mtime_ns]


def _is_marked(path: Path, mark: list[int] | None) -> bool:
    try:
        return _mark(os.lstat(path)) == mark
    except OSError:
        return False


@undoes("exchange")
def _recover(_run: str, note: dict[str, Any], _begun: float) -> None:
    FileSet(Path(note["folder"]), str(note["head"]), tuple(map(str, note["others"]))).recover()
