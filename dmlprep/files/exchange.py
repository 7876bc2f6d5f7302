"""Replace several files, or folders, as one: a model, its data file and its record are never of two runs.

The files of a set lie in one folder. One of them is the head (``model.onnx``): without it the others are no result.

1. A hidden folder ``.dmlprep-old-...`` is made beside them, with a list of the old files.
2. The old files move into it, the head first.
3. The new files move to their places, the head last. Now the new set is complete.
4. The hidden folder is removed.

A failure in 2 or 3 (on Windows: a file is open in another program) moves everything back. Where the process is killed
in 2 or 3, the head is missing, so that nobody takes the rest for a result, and the next start of any command, or the
next run into this place, puts the old set back; where it is killed in 4, the head is in its place, and the hidden
folder is removed then. The hidden folder is locked by the process that made it, so that a second run does not take it
for a left one. This holds for processes that end, not for a computer that loses power: no file is forced to the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlprep.errors import OutputError
from dmlprep.files.locks import held
from dmlprep.files.reasons import unwritable
from dmlprep.files.replacing import remove, remove_tree, replace
from dmlprep.files.run_folder import noted, undoes

__all__ = ["FileSet"]

_LIST = "old.json"


@dataclass(frozen=True)
class FileSet:
    """Files that belong together.

    Attributes:
        folder: where all of them lie.
        head: name of the file without which the others are no result.
        others: names of all that may belong to it, whether they are there or not.
    """

    folder: Path
    head: str
    others: tuple[str, ...] = ()

    @property
    def aside(self) -> Path:
        """The hidden folder that holds the old files meanwhile."""
        return self.folder / f".dmlprep-old-{hashlib.sha256(self.head.encode('utf-8', 'replace')).hexdigest()[:12]}"

    def exchange(self, new: Mapping[str, Path]) -> None:
        """Put ``new`` files in place of the old set. Old files that have no new one go.

        Args:
            new: where each new file lies now, by name; on the same drive. The head is one of them.

        Raises:
            OutputError: a file cannot be moved; the old set is in its place as before.
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
                    self._swap(new)
            finally:
                self._discard()

    def recover(self) -> None:
        """Put back the old set where an earlier run was killed while it replaced it.

        Raises:
            OutputError: another run is replacing it now, or a file cannot be moved.
        """
        if not os.path.isdir(self.aside):
            return
        with held(self.aside) as mine:
            if not mine:
                raise self._busy()
            old = self._listed()
            if not self._complete(old):
                self._put_back(old)
            self._forget()
        self._discard()

    def _swap(self, new: Mapping[str, Path]) -> None:
        old = [n for n in (self.head, *self.others) if os.path.lexists(self.folder / n)]
        try:
            (self.aside / _LIST).write_text(json.dumps(old), encoding="utf-8")
            for name in old:
                self._move(self.folder / name, self.aside / name, name)
            for name in (*(n for n in self.others if n in new), self.head):
                self._move(new[name], self.folder / name, name)
        except BaseException as error:
            if not self._complete(old):
                self._put_back(old)
            self._forget()
            if isinstance(error, OSError):
                raise unwritable(error, self.folder / self.head) from error
            raise
        self._forget()

    def _listed(self) -> list[str]:
        """Names of the old files."""
        try:
            old = json.loads((self.aside / _LIST).read_text(encoding="utf-8"))
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                raise unwritable(error, self.aside / _LIST) from error
        except ValueError:
            pass
        else:
            if isinstance(old, list):
                return [str(name) for name in old]
        # Killed before the first file moved, or after the last one: where the head is in its place, nothing is to be
        # put back. Where it is not, somebody else removed it, and no file is taken for a new one.
        return [] if os.path.lexists(self.folder / self.head) else [self.head, *self.others]

    def _forget(self) -> None:
        """Remove the list: a hidden folder without one holds nothing that is to be put back."""
        with contextlib.suppress(OSError):
            remove(self.aside / _LIST)

    def _discard(self) -> None:
        if not os.path.lexists(self.aside / _LIST):
            remove_tree(self.aside, ignore_errors=True)

    def _complete(self, old: list[str]) -> bool:
        """Whether the new head is in its place."""
        there = os.path.lexists(self.folder / self.head)
        return there and (self.head not in old or os.path.lexists(self.aside / self.head))

    def _put_back(self, old: list[str]) -> None:
        """Every old file to its place, the head last; new files that have no old one go."""
        for name in (*self.others, self.head):
            place = self.folder / name
            try:
                held_back = os.path.lexists(self.aside / name)
                if place.is_dir() and not place.is_symlink() and (held_back or name not in old):
                    remove_tree(place)  # no rename replaces a folder
                if held_back:
                    replace(self.aside / name, place)
                elif name not in old:
                    remove(place)
            except OSError as error:
                wrong = unwritable(error, place)
                wrong.fix += f"; the old files lie in {self.aside}, and the next run into this folder puts them back"
                raise wrong from error

    def _move(self, source: Path, target: Path, name: str) -> None:
        try:
            replace(source, target)
        except OSError as error:
            raise unwritable(error, self.folder / name) from error

    def _busy(self) -> OutputError:
        return OutputError(
            f"cannot be replaced now: {self.aside.name} beside it is in use, by another run of dmlprep or by a program "
            "that has a file in it open",
            where=str(self.folder / self.head),
            fix="wait, and run again",
        )


@undoes("exchange")
def _recover(_run: str, note: dict[str, Any], _begun: float) -> None:
    FileSet(Path(note["folder"]), str(note["head"]), tuple(map(str, note["others"]))).recover()
