"""What this run has begun, all in one folder that the process holds: so the next start knows what a killed run left.

The folder, among the temporary files, has the temporary folders of the run, and notes of what it has begun elsewhere: a
staging folder beside a result, an exchange of files. All that goes at the end of the program. Where a run was killed,
``sweep`` finds its folder, undoes by the notes what was begun elsewhere, and removes it. What living runs hold, in
other containers too, and what other users own stays.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dmlprep.core.errors import OutputError
from dmlprep.core.files.bounded_read import cached_json
from dmlprep.portable.locks import Held, clear_left, hold_new

PREFIX = "dmlprep-run-"
"""How the names of the folders of runs begin."""

_NOTE = "begun-"
"""How the names of notes begin."""

Undo = Callable[[str, dict[str, Any], float], None]
"""Undoes what a run began elsewhere: given ``run_name`` of that run, the note, and when it was written (st_mtime)."""

_undo: dict[str, Undo] = {}


def undoes(what: str) -> Callable[[Undo], Undo]:
    """Say how what is noted under this name is undone, also where it was never begun or is done.

    For modules that ``dmlprep.core.files`` imports, so that whoever sweeps knows all of them.
    """

    def register(function: Undo) -> Undo:
        _undo[what] = function
        return function

    return register


class Run:
    """What this process has begun, by the folder for temporary files; and what it has started.

    A process that was forked off has begun nothing of that.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.folders: dict[str, Held] = {}
        self.started: dict[object, Callable[[], None]] = {}
        self.making = threading.Lock()
        self.numbers = itertools.count(1)


current = Run()


def _own() -> Run:
    global current  # noqa: PLW0603 - a process has one
    if current.pid != os.getpid():
        current = Run()
    return current


def run_folder() -> Path:
    """The folder of this run, made where it is not there; what killed runs left is removed then.

    Raises:
        OSError: there is no place for temporary files.
    """
    run, where = _own(), tempfile.gettempdir()
    with run.making:
        own = run.folders.get(where)
        if own is None or not own.path.is_dir():  # somebody may have emptied the place for temporary files
            sweep()
            atexit.unregister(end_run)
            atexit.register(end_run)
            own = hold_new(Path(where), PREFIX, keep=lambda made: run.folders.update({where: made}))
    return own.path


def run_name() -> str:
    """Eight characters that this run alone has: part of the names of what it makes elsewhere."""
    try:
        return run_folder().name.removeprefix(PREFIX)
    except OSError:
        return os.urandom(4).hex()


def temporary_folder(name: str) -> tempfile.TemporaryDirectory[str]:
    """A folder for temporary files, below that of the run; ``name`` is for those who look into it.

    Raises:
        OSError: it cannot be made.
    """
    return tempfile.TemporaryDirectory(prefix=f"{name}-", dir=run_folder())


@contextlib.contextmanager
def noted(what: str, **facts: str | list[str]) -> Iterator[None]:
    """Note that something is begun outside of the folder of the run, until the block is left; ``undoes`` what it is."""
    note = None
    with contextlib.suppress(OSError):  # where none can be written, a kill leaves what was begun
        note = run_folder() / f"{_NOTE}{next(_own().numbers):06}.json"
        note.write_text(json.dumps({"what": what, **facts}), encoding="utf-8")
    try:
        yield
    except Exception:
        _forget(note)
        raise
    # Ctrl-C can cut the cleaning of the block short as well: then the note stays, and ``end_run`` cleans once more.
    _forget(note)


def _forget(note: Path | None) -> None:
    if note is not None:
        with contextlib.suppress(OSError):
            note.unlink()


def at_end(act: Callable[[], None]) -> Callable[[], None]:
    """Have something done before the folder of the run is removed; what comes back cancels that."""
    run, token = _own(), object()
    run.started[token] = act

    def forget() -> None:
        run.started.pop(token, None)

    return forget


def end_processes() -> None:
    """Do all that ``at_end`` was told, now."""
    for act in [*_own().started.values()]:
        with contextlib.suppress(Exception):
            act()


def end_run() -> None:
    """End what this run has started, undo and remove what it has begun. The next temporary folder is of a new run."""
    run = _own()
    end_processes()
    for where, own in [*run.folders.items()]:
        _undo_notes(own.path)
        own.remove()
        run.folders.pop(where, None)


def sweep() -> None:
    """Remove what killed runs left. Cheap where there is nothing: one look at the names in one folder."""
    with contextlib.suppress(OSError):
        clear_left(Path(tempfile.gettempdir()), PREFIX, _undo_notes)


def _undo_notes(folder: Path) -> None:
    """Undo what the run of this folder noted and did not bring to its end, the last first."""
    for note in sorted(folder.glob(f"{_NOTE}*.json"), reverse=True):
        with contextlib.suppress(OSError, OutputError, ValueError, KeyError, TypeError):  # what cannot be undone stays
            read = cached_json(note, dict[str, Any], lenient=True) or {}
            _undo[read["what"]](folder.name.removeprefix(PREFIX), read, note.stat().st_mtime)
