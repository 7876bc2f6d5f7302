"""Unpack a ``.deb`` without dpkg and without root: an ar archive that holds a tar archive (deb(5)).

A package may be hostile: nothing is written but new files, folders and links below the root file system, whatever the
package holds and whatever other packages, unpacked at the same time, leave there.
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
"""Files, folders and links in one package; of the packages that are installed here none has 3,000."""


class BadPackage(Exception):
    """The file is no package that can be unpacked here."""


def _members(file: BinaryIO) -> Iterator[tuple[str, int]]:
    """Name and size of each member; the file stands at its data."""
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
    """A window of a file as a file of its own."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int, /) -> bytes:
        data = self._file.read(min(size, self._left))
        self._left -= len(data)
        return data


def unpack(deb: Path, root: Path, skip: tuple[str, ...], budget: Budget) -> None:
    """Put the files of a package below ``root``; owners, set-user bits and maintainer scripts are left out.

    ``skip`` holds path prefixes (``usr/share/doc/``) that are not wanted.

    Raises:
        BadPackage: broken or hostile, or compressed in a way that Python cannot read here.
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
                # RecursionError: a header of a header of a header; ValueError: numbers and names that are none.
                raise BadPackage(str(error) or type(error).__name__) from error
            return
    raise BadPackage(f"{deb.name} contains no data")


def _extract(tar: tarfile.TarFile, below: Beneath, skip: tuple[str, ...]) -> None:
    # Not TarFile.extract: its filters are younger than the Python of Debian 12, and look before they write.
    made: set[str] = set()
    for count, member in enumerate(tar):
        if count >= _MEMBERS or tar.pax_headers:
            raise BadPackage(f"more than {_MEMBERS} files" if count >= _MEMBERS else "a header for all files")
        tar.members = []  # type: ignore[attr-defined]  # else it keeps them all
        path = _merged(member.name.removeprefix("./"))
        if path in ("", ".") or path.startswith(skip):
            continue
        if not member.isdir():
            if path in made:
                raise BadPackage(f"{path} is duplicated")
            made.add(path)
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
    """Since Debian 13 everything lies below /usr; what names an old folder goes where its link points."""
    first, slash, _rest = path.partition("/")
    if first in ("bin", "sbin", "lib", "lib64"):
        return f"usr/{path}" if slash else ""  # the links themselves are made before
    return path
