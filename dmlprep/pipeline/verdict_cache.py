"""A cache of DirectML verdicts: a proof that passed is not repeated for equal files on an equal device.

Each verdict is one file in the user's cache folder, named by a digest of all that it depends on
(``pipeline/proof_key.py``). A file is valid only if its digest matches, and only this user can write to the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from dmlprep.core.errors import OutputError
from dmlprep.core.files import parse_json
from dmlprep.core.files.writing import write_file
from dmlprep.core.text.documents import to_compact
from dmlprep.record import Verdict, finding
from dmlprep.runtime.environment import cache_folder

DAYS = 90
"""Age in days after which a cached verdict is not used any more."""

MOST = 500
"""Largest number of verdicts in the cache: those used last stay. One needs some 2 kB."""

_LARGEST = 1 << 20
"""Largest size in bytes of a cache file."""

_TIME = "%Y-%m-%dT%H:%M:%SZ"
_SUFFIX = ".json"


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of one cache file: a verdict and its key.

    Attributes:
        measured: time of the measurement, in UTC.
        digest: SHA-256 of key, time and verdict, in hexadecimal.
    """

    format: Literal[1]
    key: str
    measured: str
    verdict: msgspec.Raw
    digest: str


def verdict_folder() -> Path | None:
    """Return the folder of cached verdicts: below ``$XDG_CACHE_HOME`` or ``~/.cache``, on Windows ``%LOCALAPPDATA%``.

    ``None`` if the user has no such folder. The folder may not exist yet.
    """
    cache = cache_folder()
    return None if cache is None else cache / "dmlprep" / "verdicts"


class KeptVerdicts:
    """The cache of verdicts in one folder.

    Args:
        folder: the folder, created at the first use; ``None`` turns the cache off.
        fresh: True to measure every verdict again, and to replace the cached one.
        now: returns the present time; tests replace it.
    """

    def __init__(
        self, folder: Path | None, *, fresh: bool = False, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._folder, self._fresh, self._now = folder, fresh, now

    @property
    def active(self) -> bool:
        """True if the cache has a folder, so that verdicts can be cached."""
        return self._folder is not None

    def verdict(self, key: str, measure: Callable[[], Verdict]) -> Verdict:
        """Return the cached verdict for ``key``. Without one, call ``measure``, and cache its verdict if it passed.

        The cache is not used if another user can access the folder. With ``fresh``, ``measure`` is always called.

        Args:
            key: a digest in hexadecimal of everything that the verdict depends on; empty: do not use the cache.
            measure: runs the check and returns its verdict.
        """
        if not key or self._folder is None or not _ours(self._folder):
            return measure()
        if not self._fresh and (cached := self._read(self._folder, key)) is not None:
            return cached
        verdict = measure()
        if verdict.outcome == "passed":
            with contextlib.suppress(OSError, OutputError):  # a cache that cannot be written costs time only
                self._keep(self._folder, key, verdict)
        return verdict

    def _read(self, folder: Path, key: str) -> Verdict | None:
        path = folder / f"{key}{_SUFFIX}"
        try:
            data = _contents(path)
        except OSError:
            return None
        verdict = self._believed(key, data)
        with contextlib.suppress(OSError):
            if verdict is None:
                path.unlink()
            else:
                os.utime(path)
        return verdict

    def _believed(self, key: str, data: bytes) -> Verdict | None:
        """Return the verdict in the content of a cache file; ``None`` if it was changed in any way, or is too old."""
        try:
            entry = parse_json(data, _Entry)
            if entry.key != key or entry.digest != _digest(key, entry.measured, bytes(entry.verdict)):
                return None
            measured = datetime.strptime(entry.measured, _TIME).replace(tzinfo=UTC)
            verdict = parse_json(bytes(entry.verdict), Verdict)
        except ValueError:  # also of an entry that is unfit
            return None
        age = self._now() - measured
        if age > timedelta(days=DAYS) or age < timedelta(days=-1):
            return None
        if verdict.check.provider != "dml" or verdict.outcome != "passed" or verdict.device is None:
            return None
        when = f"{measured:%Y-%m-%d %H:%M} UTC"
        text = f"{verdict.check} comes from the cache, measured on {when} with the same files and device"
        findings = [*verdict.findings, finding("DP714", text, measured=entry.measured)]
        return msgspec.structs.replace(verdict, measured=entry.measured, seconds=0.0, findings=findings)

    def _keep(self, folder: Path, key: str, verdict: Verdict) -> None:
        measured, raw = self._now().strftime(_TIME), to_compact(verdict)
        entry = _Entry(1, key, measured, msgspec.Raw(raw), _digest(key, measured, raw))
        if len(data := msgspec.json.encode(entry)) <= _LARGEST:
            write_file(folder / f"{key}{_SUFFIX}", data)
        self._sweep(folder)

    def _sweep(self, folder: Path) -> None:
        """Remove old cache files, the least recently used above ``MOST``, and temporary files of killed runs."""
        oldest = (self._now() - timedelta(days=DAYS)).timestamp()
        with os.scandir(folder) as entries:
            by_age = [(entry.stat(follow_symlinks=False).st_mtime, entry) for entry in entries]
        by_age.sort(key=lambda one: -one[0])
        count = 0
        for used, entry in by_age:
            count += entry.name.endswith(_SUFFIX)
            begun = not entry.name.endswith(_SUFFIX) and used > self._now().timestamp() - 86400
            if not begun and (count > MOST or used < oldest or not entry.name.endswith(_SUFFIX)):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def _ours(folder: Path) -> bool:
    """Create the folder if it does not exist; return True if it is a folder that only this user can access.

    On Windows, permissions are not checked.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode):
        return False
    return sys.platform == "win32" or (status.st_uid == os.getuid() and not status.st_mode & 0o077)


def _contents(path: Path) -> bytes:
    """Return the content of a plain file that belongs to this user.

    Raises:
        OSError: it cannot be read, is not a plain file, is too large, or belongs to another user.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            raise OSError("dmlprep did not write this file")
        if sys.platform != "win32" and status.st_uid != os.getuid():
            raise OSError("another user's file")
        return file.read(_LARGEST)


def _digest(key: str, measured: str, verdict: bytes) -> str:
    return hashlib.sha256(b"\0".join((key.encode(), measured.encode(), verdict))).hexdigest()
