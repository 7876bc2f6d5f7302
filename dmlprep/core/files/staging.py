"""Staging folders: hidden folders next to a result, in which it is made. Leftovers of killed runs are removed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dmlprep.core.files.reasons import unwritable
from dmlprep.core.files.run_folder import noted, run_name, undoes
from dmlprep.portable.locks import clear_left, hold_new, let_go
from dmlprep.portable.replacing import remove, remove_tree

PREFIX = ".dmlprep-run-"
"""Prefix of staging folders."""

_CLOCK = 5.0
"""Seconds by which the clocks of two file systems may differ."""


@contextlib.contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """Yield a new hidden folder inside ``folder``, the folder of the result, so that a rename publishes the result.

    The hidden folder is removed afterwards, also after Ctrl-C. If ``folder`` or its parents are missing, they are made,
    and removed as well if they stay empty.

    Raises:
        OutputError: the folder cannot be made.
    """
    new_folders = [p for p in [folder, *folder.parents] if not os.path.exists(p)]
    with noted("staging", folder=os.path.abspath(folder), made=[os.path.abspath(p) for p in new_folders]):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            staging = hold_new(folder, f"{PREFIX}{run_name()}", length=4)
        except OSError as error:
            fix = "check the folder and its permissions, or choose another with -o"
            raise unwritable(error, folder, fix) from error
        try:
            yield staging.path
        finally:
            staging.remove()
            for path in new_folders:  # folders that this run made and left empty
                with contextlib.suppress(OSError):
                    path.rmdir()


def clear_staging(folder: Path) -> None:
    """Remove the staging folders in ``folder`` that no process holds: those of killed runs whose notes are lost."""
    clear_left(folder, PREFIX)


@undoes("staging")
def _clear(run: str, note: dict[str, Any], begun: float) -> None:
    # Everything with the name of the run belongs to it, whether the run held it or not.
    for path in Path(note["folder"]).glob(f".dmlprep-*{run}*"):
        if path.is_dir() and not path.is_symlink():
            let_go(path)
            remove_tree(path, ignore_errors=True)
        else:
            remove(path)
    for parent in map(Path, note["made"]):
        # Remove parent folders if they are empty. An older folder is a different one, for example in another container.
        with contextlib.suppress(OSError):
            if os.lstat(parent).st_mtime > begun - _CLOCK:
                parent.rmdir()
