"""Unpack a ``.deb`` without dpkg and without root: an ar archive that holds a tar archive (deb(5))."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["BadPackage", "unpack"]


class BadPackage(Exception):
    """The file is no package that can be unpacked here."""


def _members(file: BinaryIO) -> Iterator[tuple[str, int]]:
    """Name and size of each member; the file stands at its data."""
    if file.read(8) != b"!<arch>\n":
        raise BadPackage("not an ar archive")
    while header := file.read(60):
        if len(header) < 60 or header[58:] != b"`\n":
            raise BadPackage("broken ar header")
        name = header[:16].decode("ascii", "replace").strip().rstrip("/")
        size = int(header[48:58])
        start = file.tell()
        yield name, size
        file.seek(start + size + size % 2)


class _Part:
    """A window of a file as a file of its own."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data


def unpack(deb: Path, root: Path, skip: tuple[str, ...] = ()) -> None:
    """Put the files of a package below ``root``; owners, set-user bits and maintainer scripts are left out.

    Args:
        skip: path prefixes (``usr/share/doc/``) that are not wanted.

    Raises:
        BadPackage: broken, or compressed in a way that Python cannot read here.
    """
    with deb.open("rb") as file:
        for name, size in _members(file):
            if not name.startswith("data.tar"):
                continue
            if not name.endswith((".xz", ".gz", ".tar")):
                raise BadPackage(f"{deb.name}: {name} cannot be read here")
            with tarfile.open(fileobj=_Part(file, size), mode="r|*") as tar:  # type: ignore[call-overload]
                _extract(tar, root, skip)
            return
    raise BadPackage(f"{deb.name} holds no data")


def _extract(tar: tarfile.TarFile, root: Path, skip: tuple[str, ...]) -> None:
    # Not TarFile.extract: its filters are younger than the Python of Debian 12.
    inside = root.resolve()
    for member in tar:
        path = _merged(member.name.removeprefix("./"))
        if path in ("", ".") or path.startswith(skip):
            continue
        target = _below(root, path, inside)
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_symlink() or target.exists():
            target.unlink()  # a stage that was cut off
        if member.issym():
            target.symlink_to(member.linkname)
        elif member.islnk():
            target.hardlink_to(_below(root, _merged(member.linkname.removeprefix("./")), inside))
        elif member.isreg():
            source = tar.extractfile(member)
            assert source is not None
            with target.open("wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            target.chmod(0o755 if member.mode & 0o100 else 0o644)


def _merged(path: str) -> str:
    """Since Debian 13 everything lies below /usr; what names an old folder goes where its link points."""
    first, slash, _rest = path.partition("/")
    if first in ("bin", "sbin", "lib", "lib64"):
        return f"usr/{path}" if slash else ""  # the links themselves are made before
    return path


def _below(root: Path, path: str, inside: Path) -> Path:
    target = root / path
    if path.startswith("/") or ".." in path.split("/") or not target.parent.resolve().is_relative_to(inside):
        raise BadPackage(f"{path} leads out of the root file system")
    return target
