"""Staging folders: hidden folders beside a result, in which it is made; what killed runs left of them is cleared."""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from dmlprep.files.exchange import held
from dmlprep.files.reasons import unwritable
from dmlprep.files.replacing import remove_tree

__all__ = ["PREFIX", "clear_left", "staging_folder"]

PREFIX = ".dmlprep-run-"
"""How the names of staging folders begin."""

_SURELY_HELD = 60.0
"""Seconds after which a run that is alive holds its staging folder."""


@contextlib.contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """A folder beside the result, so that letting it appear is a rename; gone afterwards, also after Ctrl-C.

    Folders on the way to it are made, and go as well where they stay empty.

    Raises:
        OutputError: the folder cannot be made.
    """
    made = [p for p in [folder, *folder.parents] if not os.path.exists(p)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
    except OSError as error:
        fix = "check the folder and its permissions, or choose another with -o"
        raise unwritable(error, folder, fix) from error
    # At the end of the program, too: a signal can come between this function and the block of its caller.
    clear = partial(remove_tree, staging, ignore_errors=True)
    atexit.register(clear)
    try:
        with held(staging):
            yield staging
    finally:
        clear()
        atexit.unregister(clear)
        for path in made:  # folders that this run made and left empty
            with contextlib.suppress(OSError):
                path.rmdir()


def clear_left(folder: Path) -> None:
    """Remove staging folders of runs that were killed: those that no process holds."""
    for left in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            # A run that has just made its folder may not hold it yet.
            if time.time() - left.stat().st_mtime < _SURELY_HELD or not (left / "lock").exists():
                continue
            with held(left) as nobody_has_it:
                pass
            if nobody_has_it:
                remove_tree(left, ignore_errors=True)
