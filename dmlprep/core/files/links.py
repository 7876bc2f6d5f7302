"""Detect links that lead out of the folder that a command reads or writes.

A third-party folder may contain ``vocab.txt -> /etc/passwd``. A command that copies the folder would copy that file
too. A command that writes into the folder would write to another place.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from dmlprep.core.errors import InputError, OutputError

_NAME_SURROGATE = 0x2000_0000
_CACHED_REPOSITORY = re.compile(r"(models|datasets|spaces)--.+")


def leads_elsewhere(status: os.stat_result) -> bool:
    """Return whether an ``lstat`` status is that of a link: a symbolic one, or on Windows a junction.

    Python does not count junctions as symbolic links. Windows marks every file that stands for another name with one
    bit of the reparse tag (IsReparseTagNameSurrogate). Files of cloud services or deduplication do not have it.
    """
    return stat.S_ISLNK(status.st_mode) or bool(getattr(status, "st_reparse_tag", 0) & _NAME_SURROGATE)


def is_plain_file(path: Path) -> bool:
    """Return whether a path is itself a regular file: not a link, a folder or a device, and not missing."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and not leads_elsewhere(status)


def check_inside(files: Iterable[Path], folder: Path) -> None:
    """Raise an error if one of the files of a folder is, through a link, outside of the folder.

    A snapshot in Hugging Face's cache is an exception. Its files are links to the folder ``blobs`` of the same
    repository (``models--NAME/snapshots/REVISION/x`` to ``models--NAME/blobs/DIGEST``).

    Raises:
        InputError: a file leads out of the folder.
    """
    root = Path(os.path.realpath(folder))
    blobs = _blobs(root)
    for file in files:
        real = Path(os.path.realpath(file))
        if not real.is_relative_to(root) and (blobs is None or not real.is_relative_to(blobs)):
            fix = f"copy the file itself into {folder}, or remove the link"
            raise InputError("is a link to a place outside the folder", where=str(file), fix=fix)


def _blobs(root: Path) -> Path | None:
    """Return the folder ``blobs`` of a Hugging Face cache if ``root`` is a snapshot or in one, otherwise ``None``."""
    for path in (root, *root.parents):
        repository = path.parent.parent
        if path.parent.name == "snapshots" and _CACHED_REPOSITORY.fullmatch(repository.name):
            return repository / "blobs"
    return None


def check_no_links(top: Path, place: Path) -> None:
    """Refuse to write to a place below ``top`` if it, or a folder between them, is a link. ``top`` itself may be one.

    Parts of the path that do not exist yet are accepted.

    Raises:
        OutputError: a link is in the way.
    """
    step = top
    for part in place.relative_to(top).parts:
        step = step / part
        try:
            linked = leads_elsewhere(os.lstat(step))
        except (OSError, ValueError):
            return  # it does not exist, or the write reports the error
        if linked:
            what = "is a link: dmlprep writes results only into real folders"
            raise OutputError(what, where=str(step), fix="remove the link, or choose another folder with -o")
