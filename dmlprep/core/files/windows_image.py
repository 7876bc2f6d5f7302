"""Read facts from a Windows program or library: architecture, imports, version.

It works on any system, and on untrusted files. Every offset is checked, and no file causes more than ``_PIECES`` reads
or ``_MOST`` bytes. Format: learn.microsoft.com, "PE Format" and "VS_VERSIONINFO".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dmlprep.core.files.bounded_read import check_plain

_MACHINES = {0x8664: "x64", 0x014C: "x86", 0xAA64: "arm64"}
_MOST = 4 << 20
_PIECES = 4000
_SECTIONS, _LIBRARIES, _ENTRIES, _NAME = 96, 1024, 4096, 256
_VERSION_BLOCK = 92
"""Size in bytes of a VS_VERSIONINFO up to the end of its VS_FIXEDFILEINFO."""
_VERSION_KEY = "VS_VERSION_INFO\0".encode("utf-16-le")
_VERSION_TYPE = 16
_IMPORTS, _RESOURCES, _DELAYED = 1, 2, 13


class NotAnImage(ValueError):
    """A file is not a program or library of Windows, or is damaged; the message gives the fault."""


@dataclass(frozen=True)
class Image:
    """Facts about a program or library of Windows.

    Attributes:
        machine: ``x64``, ``x86`` or ``arm64``; for others the number in the header (``0x01c4``).
        library: it is a library (DLL), not a program.
        imports: names of the libraries that Windows loads with it, in the file's order, in lower case.
        delayed: names of the libraries that are loaded at the first call of one of their functions, in lower case.
        version: the file version, four numbers; ``None`` if it has none.
    """

    machine: str
    library: bool
    imports: tuple[str, ...]
    delayed: tuple[str, ...]
    version: tuple[int, int, int, int] | None


def read_image(path: Path) -> Image:
    """Return the facts about a program or library of Windows, from its file.

    Raises:
        OSError: it cannot be read.
        Unfit: it is not a plain file.
        NotAnImage: it has another format, or is damaged.
    """
    size = check_plain(path)
    with path.open("rb") as file:
        return _Reader(file, size).image()


class _Reader:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size
        self._bytes, self._pieces = _MOST, _PIECES
        self._sections: list[tuple[int, ...]] = []

    def image(self) -> Image:
        if self._take(0, 2) != b"MZ":
            raise NotAnImage("not a program or library of Windows")
        (head,) = self._unpack("<I", 0x3C)
        if self._take(head, 4) != b"PE\0\0":
            raise NotAnImage("it has no PE header")
        machine, count, optional, traits = self._unpack("<HH12xHH", head + 4)
        (magic,) = self._unpack("<H", head + 24)
        if magic not in (0x10B, 0x20B) or count > _SECTIONS:
            raise NotAnImage("its PE header is damaged")
        directories = head + 24 + (112 if magic == 0x20B else 96)
        places = min(self._unpack("<I", directories - 4)[0], 16)
        if directories + 8 * places > head + 24 + optional:
            raise NotAnImage("its PE header is damaged")
        addresses = [self._unpack("<I", directories + 8 * i)[0] for i in range(places)] + [0] * (16 - places)
        table = head + 24 + optional
        self._sections = [self._unpack("<8xIIII", table + 40 * i) for i in range(count)]
        return Image(
            _MACHINES.get(machine, f"0x{machine:04x}"),
            bool(traits & 0x2000),
            tuple(self._libraries(addresses[_IMPORTS], 20, 12)),
            tuple(self._libraries(addresses[_DELAYED], 32, 4)),
            self._version(addresses[_RESOURCES]),
        )

    def _take(self, at: int, count: int) -> bytes:
        """Return ``count`` bytes of the file from position ``at``, and count them towards the limits of this reader.

        Raises:
            NotAnImage: the file is too short, or the reader has read more than a valid file needs.
        """
        self._bytes -= count
        self._pieces -= 1
        if self._bytes < 0 or self._pieces < 0:
            raise NotAnImage("its tables are too large")
        if at + count <= self._size:
            self._file.seek(at)
            if len(data := self._file.read(count)) == count:
                return data
        raise NotAnImage("it is truncated")

    def _unpack(self, form: str, at: int) -> tuple[int, ...]:
        return struct.unpack(form, self._take(at, struct.calcsize(form)))

    def _at(self, address: int) -> int:
        """Return the position in the file for a relative virtual address.

        Raises:
            NotAnImage: no section of the file contains the address.
        """
        for size, start, raw_size, raw in self._sections:
            if start <= address < start + max(size, raw_size):
                return address - start + raw
        raise NotAnImage("its tables are outside the file")

    def _text(self, address: int) -> str:
        at = self._at(address)
        raw = self._take(at, min(_NAME, max(self._size - at, 0)))
        if 0 not in raw:
            raise NotAnImage("a name in it has no end")
        return raw[: raw.index(0)].decode("ascii", "backslashreplace").lower()

    def _libraries(self, address: int, step: int, name: int) -> Iterator[str]:
        """Yield the library names, in lower case, of a table of imports; no names if ``address`` is 0.

        Each row of the table has ``step`` bytes, and at byte ``name`` the address of a library's name.
        """
        if not address:
            return
        at = self._at(address)
        for row in range(_LIBRARIES):
            (place,) = self._unpack("<I", at + row * step + name)
            if not place:
                return
            yield self._text(place)
        raise NotAnImage("its table of imports has no end")

    def _version(self, address: int) -> tuple[int, int, int, int] | None:
        if not address:
            return None
        level: int | None = (root := self._at(address))
        for number in (_VERSION_TYPE, None, None):  # then the resource's name and its language: the first of each
            level = self._child(root, level, number) if level is not None else None
        if level is None:
            return None
        block = self._take(self._at(self._unpack("<I", level)[0]), _VERSION_BLOCK)
        signature, high, low = struct.unpack_from("<I4xII", block, 40)
        if block[6:38] != _VERSION_KEY or signature != 0xFEEF04BD:
            raise NotAnImage("its version is damaged")
        return (high >> 16, high & 0xFFFF, low >> 16, low & 0xFFFF)

    def _child(self, root: int, level: int, number: int | None) -> int | None:
        """Return the position of the target of an entry in a resource directory, or ``None`` if there is no such entry.

        The entry is the one with ``number``, or the first one for ``None``. ``root`` and ``level`` are positions in the
        file.
        """
        names, numbers = self._unpack("<12xHH", level)
        if names + numbers > _ENTRIES:
            raise NotAnImage("its table of resources is damaged")
        for row in range(names + numbers):
            key, place = self._unpack("<II", level + 16 + 8 * row)
            if number is None or key == number:
                return root + (place & 0x7FFFFFFF)
        return None
