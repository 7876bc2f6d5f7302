"""Compute SHA-256 of files with a cache: a file is read again only if device, inode, size or times have changed.

A file that changes in the same moment as it is read may keep its times (git's "racy" entries): so recent files are not
stored in the cache.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from pathlib import Path

import msgspec

from dmlprep.core.errors import OutputError
from dmlprep.core.files import cached_json
from dmlprep.core.files.writing import write_file
from dmlprep.core.text.documents import to_compact

_MOST = 200_000
"""Most files in the stored cache."""

_YOUNG = 2_500_000_000
"""Nanoseconds: a file that changed more recently is not stored in the cache. FAT stores times in steps of 2 s."""

_FORMAT = 1

_Identity = tuple[int, int, int, int, int]


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    identity: _Identity
    sha256: str


class _Cache(msgspec.Struct, frozen=True):
    format: int
    files: dict[str, _Entry]


class Digests:
    """The cache of digests of one fleet, loaded from ``file``; if that is broken or missing, every file is read."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._before = _read(file) if file is not None else {}
        self._entries: dict[str, _Entry] = {}
        self.read = 0
        """Number of files that were read."""

    def of(self, path: Path) -> str:
        """Return the SHA-256 of a plain file, in hexadecimal; raise OSError if it cannot be read or is not plain."""
        name = os.path.abspath(path)
        identity = _identity(path)
        for known in (self._entries.get(name), self._before.get(name)):
            if known is not None and known.identity == identity:
                self._entries[name] = known
                return known.sha256
        with path.open("rb") as file:
            sha = hashlib.file_digest(file, "sha256").hexdigest()
        self.read += 1
        if _identity(path) == identity:  # otherwise the file was written meanwhile, and the next call reads it again
            self._entries[name] = _Entry(identity, sha)
        return sha

    def save(self) -> None:
        """Write the cache to its file. Errors are ignored: they only cost time in the next run."""
        if self._file is None:
            return
        with contextlib.suppress(OSError, OutputError):
            clock = self._file.with_suffix(".clock")
            write_file(clock, b"")
            now = clock.stat().st_mtime_ns  # by the clock of the file system
            old = {name: entry for name, entry in self._entries.items() if max(entry.identity[3:]) < now - _YOUNG}
            room = max(0, _MOST - len(old))
            others = [(n, s) for n, s in self._before.items() if n not in self._entries][:room]
            data = to_compact(_Cache(_FORMAT, {**dict(others), **old}))
            write_file(self._file, data)


def _identity(path: Path) -> _Identity:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # a pipe or a device may have no end
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read(file: Path) -> dict[str, _Entry]:
    cache = cached_json(file, _Cache)
    return cache.files if cache is not None and cache.format == _FORMAT else {}
