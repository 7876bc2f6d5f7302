"""Unpack a ``.deb`` without dpkg and without root: an ar archive that contains a tar archive (deb(5)).

A package may be hostile. Only new files, folders and links below the root file system are written, whatever the package
contains. Other packages may write there at the same time.
"""

from __future__ import annotations

import shutil
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from dmlprep.runtime.linux.bounded import CHUNK, FAULTS, Budget, Forward, inflate
from dmlprep.runtime.linux.safe_fs import Beneath, LeadsOut

_KINDS = {"data.tar": "", "data.tar.gz": "gz", "data.tar.xz": "xz"}

_MEMBERS = 50_000
"""Limit for the number of files, folders and links in one package. No package of the runtime has 3,000."""


class BadPackage(Exception):
    """The file is not a package that can be unpacked here."""


def _members(file: BinaryIO) -> Iterator[tuple[str, int]]:
    """Yield name and size in bytes of each member of an ar archive; the file position is then at the member's data."""
    if file.read(8) != b"!<arch>\n":
        raise BadPackage("not an ar archive")
    while header := file.read(60):
        size = header[48:58].decode("ascii", "replace").strip()
        if len(header) < 60 or header[58:] != b"`\n" or not (size.isascii() and size.isdigit()):
            raise BadPackage("broken ar header")
        name = header[:16].decode("ascii", "replace").strip().rstrip("/")
        start = file.tell()
        yield name, int(size)
        file.seek(start + int(size) + int(size) % 2)


class _Part:
    """The next ``size`` bytes of an open file, with the method ``read`` of a file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._remaining = file, size

    def read(self, size: int, /) -> bytes:
        data = self._file.read(min(size, self._remaining))
        self._remaining -= len(data)
        return data


def unpack(deb: Path, root: Path, skip: tuple[str, ...], budget: Budget) -> None:
    """Extract the files of a package below ``root``, without owners, set-user bits and maintainer scripts.

    ``skip`` has path prefixes to omit, such as ``usr/share/doc/``. The size of the content is subtracted from
    ``budget``.

    Raises:
        BadPackage: the package is broken, hostile, too large, or compressed with an unsupported method.
        OSError: the files cannot be written.
    """
    with deb.open("rb") as file, Beneath(root) as below:
        for name, size in _members(file):
            if not name.startswith("data.tar"):
                continue
            if name not in _KINDS:
                raise BadPackage(f"{deb.name}: {name} cannot be read here")
            content = Forward(inflate(_Part(file, size), _KINDS[name], budget))
            try:
                with tarfile.open(fileobj=content, mode="r:") as tar:  # type: ignore[call-overload]
                    _extract(tar, below, skip)
                content.finish()
            except (*FAULTS, LeadsOut, tarfile.TarError, RecursionError, ValueError) as error:
                # RecursionError: a deeply nested header; ValueError: invalid numbers and names.
                raise BadPackage(str(error) or type(error).__name__) from error
            return
    raise BadPackage(f"{deb.name} contains no data")


def _extract(tar: tarfile.TarFile, below: Beneath, skip: tuple[str, ...]) -> None:
    # Not TarFile.extract: Debian 12's Python lacks its filters, and they check before they write.
    paths: set[str] = set()
    for count, member in enumerate(tar):
        if count >= _MEMBERS or tar.pax_headers:
            raise BadPackage(f"more than {_MEMBERS} files" if count >= _MEMBERS else "a header for all files")
        tar.members = []  # type: ignore[attr-defined]  # else it keeps them all
        path = _merged(member.name.removeprefix("./"))
        if path in ("", ".") or path.startswith(skip):
            continue
        if not member.isdir():
            if path in paths:
                raise BadPackage(f"{path} is duplicated")
            paths.add(path)
        _put(tar, member, below, path)


def _put(tar: tarfile.TarFile, member: tarfile.TarInfo, below: Beneath, path: str) -> None:
    if member.isdir():
        below.make(path)
    elif member.issym():
        below.link(path, member.linkname)
    elif member.islnk():
        below.hardlink(path, _merged(member.linkname.removeprefix("./")))
    elif member.isreg() and not member.issparse() and member.size >= 0:
        source = tar.extractfile(member)
        assert source is not None
        with below.create(path, 0o755 if member.mode & stat.S_IXUSR else 0o644) as out:
            shutil.copyfileobj(source, out, CHUNK)
    else:
        raise BadPackage(f"{path} is not an ordinary file, folder or link")


def _merged(path: str) -> str:
    """Return the path below /usr for a path in an old folder: ``bin/sh`` becomes ``usr/bin/sh``; others stay unchanged.

    Since Debian 13, all files are below /usr. The folders themselves (``bin``) give an empty text.
    """
    first, slash, _rest = path.partition("/")
    if first in ("bin", "sbin", "lib", "lib64"):
        return f"usr/{path}" if slash else ""  # the links themselves already exist
    return path
