"""Find the folders of jobs that the project file no longer names, and remove only files that a fleet wrote."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from dmlprep.core.errors import OutputError
from dmlprep.core.files import remove, unwritable
from dmlprep.fleet.digests import Digests
from dmlprep.fleet.places import FILES, STATE, Place, State, remove_empty
from dmlprep.fleet.run import STATE_FOLDER, FleetObserver, lock_of
from dmlprep.portable.locks import held

_MOST = 1_000_000
"""Most files and folders below the output folder to examine."""

_KEY = re.compile(r"[0-9a-f]{64}")


def gone_jobs(out: Path, names: Iterable[str]) -> list[str]:
    """Return the names of jobs that have a folder below ``out`` but are not in ``names``, the jobs of the file, sorted.

    A folder belongs to a job if it has a ``job.json`` that a fleet wrote. Links are not followed. Without a fleet's
    state folder in ``out``, the list is empty.

    Raises:
        OutputError: a folder cannot be read, or there are more than 1,000,000 files and folders.
    """
    if not os.path.isdir(out / STATE_FOLDER):
        return []
    # On a system that ignores case, both are one folder.
    known = {name.casefold() for name in names}
    job_names = (path.relative_to(out).as_posix() for path in _folders(out) if _state(path) is not None)
    return sorted(name for name in job_names if name != "." and name.casefold() not in known)


def prune(out: Path, names: Iterable[str], observer: FleetObserver) -> None:
    """Remove the results of jobs that the file no longer names, and folders that become empty; report each job.

    Files that changed after their job ended, links and all other files stay. So do jobs of another run.

    Raises:
        OutputError: a folder cannot be read, or a file cannot be removed.
    """
    digests = Digests(out / STATE_FOLDER / "digests.json")
    for name in gone_jobs(out, names):
        observer.job_removed(name, _pruned(out, name, digests))


def _pruned(out: Path, name: str, digests: Digests) -> bool:
    """Remove one job's results, unless another run has the job; return True if its folder no longer exists."""
    folder = out / name
    with held(lock_of(out / STATE_FOLDER, name)) as ours:
        state = _state(folder)
        here = os.path.join(os.path.realpath(out), *name.split("/"))
        if not ours or state is None or os.path.realpath(folder) != here:
            return False
        try:
            for file in FILES:
                path = folder / file
                # For a job that did not end, the name is enough.
                if _plain(path) and (state.exit_code is None or state.files.get(file) == digests.of(path)):
                    remove(path)
            remove(folder / STATE)  # removed last: the next run continues an interrupted removal
        except OSError as error:
            raise unwritable(error, folder, "close the program that uses it, and run again") from error
    remove_empty(folder, out)
    return not os.path.lexists(folder)


def _state(folder: Path) -> State | None:
    """Return the content of ``job.json`` if it is a plain file that a fleet wrote, otherwise ``None``."""
    if not _plain(folder / STATE):
        return None
    state = Place(folder, folder).state()
    return state if state is not None and _KEY.fullmatch(state.key) else None


def _plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _folders(out: Path) -> Iterator[Path]:
    """Yield folders below ``out`` with a ``job.json``; links are not followed."""

    def unreadable(error: OSError) -> None:
        raise unwritable(error, out, "choose another folder with -o") from error

    count = 0
    for name, folders, files in os.walk(out, onerror=unreadable):
        folders[:] = [folder for folder in folders if folder != STATE_FOLDER]
        count += len(folders) + len(files)
        if count > _MOST:
            fix = "remove by hand the folders of jobs that are no longer in the file"
            raise OutputError(f"more than {_MOST:,} names in this folder", where=str(out), fix=fix)
        if STATE in files:
            yield Path(name)
