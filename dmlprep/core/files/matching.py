"""Find the files of a pattern (``models/**/*.onnx``) within limits.

Python's own ``glob`` has no limit: a pattern with several ``**`` reads the same folders again and again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path

from dmlprep.core.files.bounded_read import Unfit

MOST_MATCHES = 10_000
"""Default limit for the number of files that one pattern matches."""

MOST_LOOKED_AT = 1_000_000
"""Default limit for the number of names that are read from folders for one pattern. Reading them takes seconds, and
no folder of models has as many."""

_ANY_FOLDERS = "**"


def is_pattern(text: str) -> bool:
    """Return whether a text has a wildcard: ``*``, ``?`` or ``[``."""
    return any(sign in text for sign in "*?[")


def matching(folder: Path, pattern: str, *, most: int = MOST_MATCHES, looked_at: int = MOST_LOOKED_AT) -> list[Path]:
    """Return the regular files that match a pattern, sorted by path; a relative pattern is relative to ``folder``.

    As in a shell, ``*`` and ``**`` do not match names that begin with a dot. ``**`` follows no links. Case matters if
    it matters to the system. A part that exists as a name, such as ``[1]``, is that name and not a pattern. The list is
    empty if no file matches.

    Raises:
        Unfit: more than ``most`` files match, more than ``looked_at`` names were read, folders are nested too deeply,
            or ``pattern`` has no file name, or a zero byte.
    """
    path = Path(pattern)
    if "\0" in pattern or not path.name:
        raise Unfit(f"{pattern!r} is not a file pattern", "write a path, such as models/*.onnx; ** matches any folders")
    root, parts = (Path(path.anchor), path.parts[1:]) if path.anchor else (folder, path.parts)
    matches: set[Path] = set()
    try:
        for match in _Search(pattern, looked_at).below(root, parts):
            if match.is_file():
                matches.add(match)
                if len(matches) > most:
                    raise Unfit(f"more than {most} files match {pattern!r}", "match fewer files")
    except RecursionError:
        raise Unfit(f"folders are nested too deep for {pattern!r}", "start at a deeper folder") from None
    return sorted(matches)


class _Search:
    """One search for a pattern. It counts the names that it reads, and raises ``Unfit`` if they exceed ``budget``."""

    def __init__(self, pattern: str, budget: int) -> None:
        self._pattern, self._budget = pattern, budget
        self._visited: set[tuple[Path, int]] = set()

    def below(self, at: Path, parts: tuple[str, ...]) -> Iterator[Path]:
        """Yield the paths below the folder ``at`` that match the remaining parts of the pattern, files and folders."""
        if not parts:
            yield at
            return
        part, rest = parts[0], parts[1:]
        if part == _ANY_FOLDERS:
            if (at, len(parts)) in self._visited:  # several ** reach one folder in many ways
                return
            self._visited.add((at, len(parts)))
            yield from self.below(at, rest or ("*",))
            for entry in self._entries(at):
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                    yield from self.below(at / entry.name, parts)
        elif os.path.lexists(at / part):  # even if it looks like a pattern: [1] may be part of a name
            yield from self.below(at / part, rest)
        elif is_pattern(part):
            for entry in self._entries(at):
                if fnmatch(entry.name, part) and (part.startswith(".") or not entry.name.startswith(".")):
                    yield from self.below(at / entry.name, rest)

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as scanned:
                entries = list(islice(scanned, self._budget + 1))
        except OSError:  # not a folder, or not readable for this user
            return []
        self._budget -= len(entries)
        if self._budget < 0:
            raise Unfit(f"{self._pattern!r} matches too many files", "start it at a deeper folder")
        return entries
