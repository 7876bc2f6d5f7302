"""The output folder of one job: it shows whether the job is done, so that it is not repeated, and never mixes two runs.

``job.json`` has the key of the run that wrote the other files, and their digests. It is written before the job runs,
without an outcome, and again when the job has ended. Files that ``job.json`` does not list do not belong to the fleet.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import msgspec

from dmlprep.core.errors import OutputError
from dmlprep.core.files import cached_json, remove, replace, unwritable
from dmlprep.core.files.writing import write_file
from dmlprep.core.text.documents import to_compact
from dmlprep.fleet.digests import Digests

MODEL, RECORD, REPORT, STATE = "model.onnx", "run.json", "report.html", "job.json"
FILES = (MODEL, f"{MODEL}.data", RECORD, REPORT)
"""The names of the files that a job writes, except ``job.json``."""

_FORMAT = 1
_LASTING = (0, 1, 2)
"""Exit codes that depend on a job's key alone: a good model, a refused one, a file that is not a model.

Jobs with other exit codes depend on the machine, and are tried again.
"""


def remove_empty(folder: Path, top: Path) -> None:
    """Remove a folder and the folders above it, up to but without ``top``, if they are empty."""
    for path in (folder, *folder.parents):
        if path == top:
            break
        with contextlib.suppress(OSError):
            path.rmdir()


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of ``job.json``.

    Attributes:
        key: digest of everything that the job depended on, except data files.
        exit_code: ``None`` while the job runs, or if its run was killed.
        error: the reason of a failure as text.
        code: the finding code of ``error``, if there is no record.
        reads: path -> SHA-256 of the model's data files; paths are relative to the folder of the project file.
        files: name -> SHA-256 of the files that the job wrote.
        lasting: False if a run with the same key might end another way, although its exit code is 0, 1 or 2.
    """

    format: int = _FORMAT
    key: str
    exit_code: int | None = None
    error: str = ""
    code: str = ""
    seconds: float = 0.0
    reads: dict[str, str] = {}
    files: dict[str, str] = {}
    lasting: bool = True


class Place:
    """The folder of one job; ``base`` is the folder of the project file, to which paths of data files are relative."""

    def __init__(self, folder: Path, base: Path) -> None:
        self.folder, self._base = folder, base

    def state(self) -> State | None:
        """Return the content of ``job.json``; ``None`` if it is missing, broken or of another version."""
        state = cached_json(self.folder / STATE, State, 1 << 22)
        return state if state is not None and state.format == _FORMAT else None

    def known_state(self, key: str, digests: Digests) -> State | None:
        """Return the state of a finished job with this key, if its data files and all its results are unchanged.

        ``None`` otherwise, and for an outcome that depends on the machine: the job must run.
        """
        state = self.state()
        if state is None or state.key != key or state.exit_code not in _LASTING or not state.lasting:
            return None
        good = MODEL in state.files if state.exit_code == 0 else not os.path.lexists(self.folder / MODEL)
        if not good or not set(state.files) <= set(FILES):
            return None
        files = [(self._base / path, sha) for path, sha in state.reads.items()]
        files += [(self.folder / name, sha) for name, sha in state.files.items()]
        try:
            return state if all(digests.of(path) == sha for path, sha in files) else None
        except (OSError, ValueError):  # missing, or not a path
            return None

    def begin(self, key: str, *, force: bool) -> None:
        """Write a ``job.json`` without an outcome: a job with this key begins in the folder.

        Raises:
            OutputError: the folder has files that do not belong to a fleet (without ``force``), or cannot be written.
        """
        if not force and not os.path.lexists(self.folder / STATE):
            for name in FILES:
                if os.path.lexists(self.folder / name):
                    fix = "choose another folder, or pass --force to replace the files"
                    raise OutputError("the file exists, and is not of a fleet", where=str(self.folder / name), fix=fix)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(error, self.folder) from error
        write_file(self.folder / STATE, to_compact(State(key=key)))

    def settle(
        self, key: str, exit_code: int, digests: Digests, *, record: Path | None, reads: dict[Path, str], **more: Any
    ) -> None:
        """Write the ``job.json`` of a job that ended; ``more`` are further fields of ``State``.

        If the job failed, its earlier results are removed first, and ``record``, the record of the run, is moved into
        the folder. ``reads``: path -> SHA-256 of the data files that the run read.

        Raises:
            OutputError: a file in the folder cannot be read, removed or written.
        """
        try:
            if exit_code != 0:
                for name in (MODEL, f"{MODEL}.data", RECORD):  # the head first
                    remove(self.folder / name)
                if record is None:
                    remove(self.folder / REPORT)
                elif record.is_file():
                    replace(record, self.folder / RECORD)
            files = {name: digests.of(self.folder / name) for name in FILES if (self.folder / name).is_file()}
        except OSError as error:
            raise unwritable(error, self.folder) from error
        paths = {self._shown(path): sha for path, sha in reads.items()}
        state = State(key=key, exit_code=exit_code, reads=paths, files=files, **more)
        write_file(self.folder / STATE, to_compact(state))

    def restore(self, before: State | None, top: Path) -> None:
        """Restore ``job.json`` after a job that was stopped; ``before`` is its earlier content.

        If ``before`` is ``None`` and there are results, leave the folder as it is, so that the next run does the job
        again. Without results, remove ``job.json`` and empty folders below ``top``.
        """
        if before is not None:
            write_file(self.folder / STATE, to_compact(before))
            return
        if any(os.path.lexists(self.folder / name) for name in FILES):
            return  # it was about to end: the next run does it again
        remove(self.folder / STATE)
        remove_empty(self.folder, top)

    def _shown(self, path: Path) -> str:
        with contextlib.suppress(ValueError):  # another drive
            return Path(os.path.relpath(path, self._base)).as_posix()
        return str(path)
