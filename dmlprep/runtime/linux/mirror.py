"""Download files of a Debian mirror, and check each against the digest and size in the signed index."""

from __future__ import annotations

import hashlib
import http.client
import io
import re
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import IO
from urllib.parse import quote

from dmlprep.core.errors import CheckNotRun, UsageError
from dmlprep.process.failure import FULL
from dmlprep.runtime.linux.archive import Archive, Package
from dmlprep.runtime.linux.bounded import CHUNK, FAULTS, Budget, inflate
from dmlprep.runtime.linux.release import Expectation, check_release, verify_release

_TIMEOUT = 60.0
"""Seconds without data after which a download is cancelled."""

_LEAST_RATE = 4096
"""Smallest average download rate in bytes per second, after the first five minutes. It stops a server that sends a
byte per minute."""

_TRIES = 3

_RELEASE_LIMIT = 4 << 20
"""Limit for the size of a release file in bytes; its size is not known beforehand, and Debian's have 150 kB."""

_INDEX_LIMIT = 64 << 20
"""Limit for the size of a compressed package index in bytes; Debian's have 10 MB."""

_TEXT_LIMIT = 512 << 20
"""Limit for the size of a package index in bytes; Debian's have 60 MB."""


class _Ended(OSError):
    """The response is shorter than it should be; a retry may help."""


class Mirror:
    """A Debian mirror, from which packages are downloaded.

    Args:
        url: address of the folder that contains ``dists`` and ``pool``.
        keyring: file with the keys that may sign the release files.
        expected: facts that the release files are compared with.
        say: progress callback: (what, bytes done, bytes in all).

    Attributes:
        signatures: for each suite, the key that signed its release file, and any accepted fault.
        dates: for each suite, the date of its release file.

    Raises:
        UsageError: ``url`` is not an http or https address.
    """

    def __init__(self, url: str, keyring: Path, expected: Expectation, say: Callable[[str, int, int], None]) -> None:
        if not re.match(r"https?://", url):
            raise UsageError("the mirror must be an http or https address", where=url, fix="pass --mirror URL")
        self.url, self.keyring, self.expected, self.say = url.rstrip("/"), keyring, expected, say
        self.signatures: dict[str, str] = {}
        self.dates: dict[str, datetime] = {}

    def _get(self, path: str, out: IO[bytes], *, size: int = 0, limit: int = 0) -> str:
        """Download a file of ``size`` bytes (or up to ``limit``, if unknown) into ``out``; return its SHA-256."""
        address = f"{self.url}/{quote(path, safe='/+~:')}"
        for attempt in range(1, _TRIES + 1):
            out.seek(0)
            out.truncate()
            try:
                with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer:
                    return copy_body(answer, out, size, limit or size, address)
            except (http.client.HTTPException, OSError) as error:
                if isinstance(error, OSError) and error.errno in FULL:
                    raise  # the mirror is not at fault
                gone = isinstance(error, urllib.error.HTTPError) and error.code in (403, 404, 410)
                if gone or attempt == _TRIES:
                    fix = "check that the address is a reachable Debian mirror, then run it again"
                    raise CheckNotRun(f"cannot be fetched: {error}", where=address, fix=fix) from error
        raise AssertionError

    def archive(self, suite: str) -> Archive:
        """Download, check and return the package index of a suite (section main).

        Raises:
            CheckNotRun: the index cannot be fetched or has another digest, or its release file is not current.
            UsageError: the release file has no valid signature, or does not list the index.
        """
        self.say(f"index of {suite}", 0, 0)
        raw, where = io.BytesIO(), f"{self.url}/dists/{suite}/InRelease"
        self._get(f"dists/{suite}/InRelease", raw, limit=_RELEASE_LIMIT)
        text, how = verify_release(raw.getvalue(), self.keyring, where)
        release, note = check_release(text, suite, self.expected, where)
        self.signatures[suite] = f"{how}, of {release.date:%Y-%m-%d %H:%M} UTC" + (f" ({note})" if note else "")
        self.dates[suite] = release.date
        if note:
            self.say(f"note: the release file of {suite} has {note}", 0, 0)
        path = "main/binary-amd64/Packages.xz"
        where = f"{self.url}/dists/{suite}/{path}"
        if path not in release.files:
            raise UsageError(f"the release file of {suite} lists no {path}", where=self.url)
        digest, size = release.files[path]
        if not 0 < size <= _INDEX_LIMIT:
            raise CheckNotRun(f"invalid index of {size} bytes", where=where)
        _plain_digest, plain_size = release.files.get(path.removesuffix(".xz"), ("", _TEXT_LIMIT))
        with tempfile.TemporaryFile() as file:
            _check(self._get(f"dists/{suite}/{path}", file, size=size), digest, path)
            file.seek(0)
            try:
                pieces = inflate(file, "xz", Budget(min(plain_size, _TEXT_LIMIT), path))
                return Archive(suite, b"".join(pieces).decode("utf-8", "replace"))
            except FAULTS as error:
                raise CheckNotRun(f"cannot be unpacked: {error}", where=where) from error

    def fetch(self, packages: Sequence[Package], folder: Path) -> None:
        """Download packages into ``folder``, as files named by ``file_name``, and check their digests.

        Files that are already there with the right digest are not fetched again.

        Raises:
            CheckNotRun: a package cannot be fetched, or has another digest.
        """
        folder.mkdir(parents=True, exist_ok=True)

        def one(package: Package) -> int:
            target = folder / file_name(package)
            if not (target.is_file() and target.stat().st_size == package.size and _digest(target) == package.sha256):
                part = target.with_name(target.name + ".part")
                try:
                    with part.open("w+b") as out:
                        _check(self._get(package.filename, out, size=package.size), package.sha256, package.filename)
                    part.replace(target)
                finally:
                    part.unlink(missing_ok=True)
            return package.size

        with_each(packages, one, 4, lambda done, total: self.say("packages", done, total))


def with_each(
    packages: Sequence[Package], act: Callable[[Package], int], threads: int, say: Callable[[int, int], None]
) -> None:
    """Call ``act`` for each package in several threads. The first failure stops all.

    Args:
        act: processes a package, and returns its size in bytes.
        say: progress callback: (bytes done, bytes in all).
    """
    done, total = 0, sum(package.size for package in packages)
    with ThreadPoolExecutor(threads) as pool:
        try:
            for size in pool.map(act, packages):
                done += size
                say(done, total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def file_name(package: Package) -> str:
    """Return the file name of a downloaded package. Two packages of one name have different file names."""
    return f"{package.name}_{package.sha256}.deb"


def copy_body(answer: http.client.HTTPResponse, out: IO[bytes], size: int, limit: int, address: str) -> str:
    """Write the body of an answer to a file, and return its SHA-256; refuse a body that is too long or too slow.

    ``size`` is the expected size in bytes (0: unknown), and ``limit`` the largest accepted one.

    Raises:
        CheckNotRun: the body is too long or too slow.
        OSError: the body is too short, or cannot be written.
    """
    digest = hashlib.sha256()
    latest = time.monotonic() + 300 + limit / _LEAST_RATE
    done = 0
    header = answer.headers.get("Content-Length", "")
    length = int(header[:18]) if header.isascii() and header.isdigit() else 0
    if length > limit:
        raise _too_long(address, length, limit)
    while piece := answer.read1(CHUNK):
        done += len(piece)
        if done > limit:
            raise _too_long(address, done, limit)
        if time.monotonic() > latest:
            fix = "check the connection to the mirror, or use a nearer one"
            raise CheckNotRun(f"cannot be fetched: too slow (stopped after {done} bytes)", where=address, fix=fix)
        digest.update(piece)
        out.write(piece)
    if done < max(size, length):
        raise _Ended(f"it ended after {done} of {size or length} bytes")
    out.flush()
    return digest.hexdigest()


_UPDATE = "the mirror might be updating: run it again in an hour, or use another mirror"


def _too_long(address: str, size: int, limit: int) -> CheckNotRun:
    what = f"the answer is longer than the requested file: {size} bytes and more, {limit} at most"
    return CheckNotRun(what, where=address, fix=_UPDATE)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(actual: str, digest: str, path: str) -> None:
    if actual != digest:
        raise CheckNotRun("the file does not match the signed index", where=path, fix=_UPDATE)
