"""The file that was meant: a mistyped name is most often a name nearby."""

from __future__ import annotations

import os
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

_LOOKED_AT = 2000
"""Names of a folder: comparing more would take longer than the error is worth."""


def nearest(path: Path) -> Path | None:
    """The file in the folder of ``path`` whose name is most like the one that is not there; ``None`` without one."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in islice(entries, _LOOKED_AT) if not entry.name.startswith(".")]
    except (OSError, ValueError):
        return None
    close = get_close_matches(path.name, names, 1, 0.75)
    return path.parent / close[0] if close else None


def meant(path: Path, otherwise: str) -> str:
    """How to mend a path that is not there: the file that was meant, or what is said of any other path."""
    near = nearest(path)
    return f"did you mean {near}?" if near is not None and near.name != path.name else otherwise
