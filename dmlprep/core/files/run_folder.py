"""Record everything that this process begins in one locked folder, so that the next start can clean up after a crash.

The folder is among the temporary files. It contains the temporary folders of the run (one process of dmlprep), and
notes. A note describes an action elsewhere, such as a staging folder next to a result, or an exchange of files. All of
it is removed at the end of the program. After a killed run, ``sweep`` finds the folder, undoes what the notes list, and
removes it. Folders of living runs, also in other containers, and of other users stay.
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
"""Prefix of the names of run folders."""

_NOTE = "begun-"
"""Prefix of the file names of notes."""

Undo = Callable[[str, dict[str, Any], float], None]
"""Undoes an action of a run, given that run's ``run_name``, the note, and the time when it was written (st_mtime)."""

_undo: dict[str, Undo] = {}


def undoes(what: str) -> Callable[[Undo], Undo]:
    """Register the decorated function to undo actions with the name ``what``.

    The function is also called for actions that were never begun or are complete. Only modules that
    ``dmlprep.core.files`` imports may use it, so that every ``sweep`` knows all of them.
    """

    def register(function: Undo) -> Undo:
        _undo[what] = function
        return function

    return register


class Run:
    """The leftovers that this process has to remove at its end: its run folders, and the processes that it started.

    A forked process starts with an empty one.

    Attributes:
        folders: the run folders, by the folder for temporary files that contains each.
        started: the functions that ``at_end`` registered.
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
    """Return the folder of this run. The first call makes the folder, and cleans up after killed runs.

    Raises:
        OSError: there is no folder for temporary files.
    """
    run, where = _own(), tempfile.gettempdir()
    with run.making:
        own = run.folders.get(where)
        if own is None or not own.path.is_dir():  # another program may have emptied the folder for temporary files
            sweep()
            atexit.unregister(end_run)
            atexit.register(end_run)
            own = hold_new(Path(where), PREFIX, keep=lambda folder: run.folders.update({where: folder}))
    return own.path


def run_name() -> str:
    """Return eight characters that are unique to this run, for the names of its files and folders in other places."""
    try:
        return run_folder().name.removeprefix(PREFIX)
    except OSError:
        return os.urandom(4).hex()


def temporary_folder(name: str) -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder below the run's folder; its name begins with ``name``.

    Windows removes no file that an array still maps; such a file stays until the run's folder is removed.

    Raises:
        OSError: it cannot be made.
    """
    return tempfile.TemporaryDirectory(prefix=f"{name}-", dir=run_folder(), ignore_cleanup_errors=True)


@contextlib.contextmanager
def noted(what: str, **facts: str | list[str]) -> Iterator[None]:
    """Write a note about an action outside the run's folder, and remove the note after the block.

    If the process is killed in the block, the next start undoes the action; after Ctrl-C, ``end_run`` does. After
    another exception nothing is undone: the block must clean up itself. Without a run folder, no note is written.

    Args:
        what: a name that is registered with ``undoes``.
        **facts: further values of the note, for the function that undoes the action.
    """
    note = None
    with contextlib.suppress(OSError):  # without a note, a killed run leaves its leftovers
        note = run_folder() / f"{_NOTE}{next(_own().numbers):06}.json"
        note.write_text(json.dumps({"what": what, **facts}), encoding="utf-8")
    try:
        yield
    except Exception:
        _forget(note)
        raise
    # Ctrl-C can also interrupt the cleanup of the block. Then the note stays, and ``end_run`` cleans up again.
    _forget(note)


def _forget(note: Path | None) -> None:
    if note is not None:
        with contextlib.suppress(OSError):
            note.unlink()


def at_end(act: Callable[[], None]) -> Callable[[], None]:
    """Register a function to call before the run's folder is removed; return a function that cancels this."""
    run, token = _own(), object()
    run.started[token] = act

    def forget() -> None:
        run.started.pop(token, None)

    return forget


def end_processes() -> None:
    """Call all functions that ``at_end`` registered, now, and ignore their errors."""
    for act in [*_own().started.values()]:
        with contextlib.suppress(Exception):
            act()


def end_run() -> None:
    """Call the functions of ``at_end``, undo the actions that still have notes, and remove the run's folders.

    The next temporary folder belongs to a new run.
    """
    run = _own()
    end_processes()
    for where, own in [*run.folders.items()]:
        _undo_notes(own.path)
        own.remove()
        run.folders.pop(where, None)


def sweep() -> None:
    """Clean up after killed runs. Without leftovers this is cheap: it lists the names in one folder."""
    with contextlib.suppress(OSError):
        clear_left(Path(tempfile.gettempdir()), PREFIX, _undo_notes)


def _undo_notes(folder: Path) -> None:
    """Undo the actions whose notes are still in the folder of a run, the last first. Errors are ignored."""
    for note in sorted(folder.glob(f"{_NOTE}*.json"), reverse=True):
        with contextlib.suppress(OSError, OutputError, ValueError, KeyError, TypeError):  # what cannot be undone stays
            read = cached_json(note, dict[str, Any], lenient=True) or {}
            _undo[read["what"]](folder.name.removeprefix(PREFIX), read, note.stat().st_mtime)
