"""Give Wine's ucrtbase.dll the C99 complex functions that numpy imports, which are only stubs in Wine 10.

A stub of Wine is 24 bytes of code that reports the missing function and aborts. The code that replaces it has 5 to 22
bytes and needs no relocation. Real and imaginary part are moves. Modulus and argument are jumps to ``hypot`` and
``atan2`` of the same library. On x64 a ``float _Complex`` is passed in RCX, and a ``double _Complex`` by a pointer in
RCX. The result is in XMM0 (learn.microsoft.com, "x64 calling convention").
"""

from __future__ import annotations

import struct
from pathlib import Path

__all__ = ["patched"]

_FLOAT_REAL = bytes.fromhex("660f6ec1")  # movd xmm0, ecx
_FLOAT_IMAGINARY = bytes.fromhex("48c1e920 660f6ec1")  # shr rcx, 32; movd xmm0, ecx
_FLOAT_BOTH = bytes.fromhex("660f6ec1 48c1e920 660f6ec9")  # xmm0 = real, xmm1 = imaginary
_FLOAT_SWAPPED = bytes.fromhex("660f6ec9 48c1e920 660f6ec1")
_REAL = bytes.fromhex("f20f1001")  # movsd xmm0, [rcx]
_IMAGINARY = bytes.fromhex("f20f104108")  # movsd xmm0, [rcx + 8]
_BOTH = bytes.fromhex("f20f1001 f20f104908")
_SWAPPED = bytes.fromhex("f20f104108 f20f1009")
_RETURN = b"\xc3"

_BODIES: dict[str, tuple[bytes, str]] = {
    "crealf": (_FLOAT_REAL, ""),
    "cimagf": (_FLOAT_IMAGINARY, ""),
    "cabsf": (_FLOAT_BOTH, "_hypotf"),
    "cargf": (_FLOAT_SWAPPED, "atan2f"),
    **{f"creal{s}": (_REAL, "") for s in ("", "l")},  # long double is double here
    **{f"cimag{s}": (_IMAGINARY, "") for s in ("", "l")},
    **{f"cabs{s}": (_BOTH, "_hypot") for s in ("", "l")},
    **{f"carg{s}": (_SWAPPED, "atan2") for s in ("", "l")},
}
"""The code of each function, and the function that it jumps to; empty: it returns."""

_STUB = 24
"""Bytes of a stub."""


class _Library:
    """A 64-bit PE file (learn.microsoft.com, "PE Format")."""

    def __init__(self, raw: bytes) -> None:
        self.raw = bytearray(raw)
        header = self._unpack("<I", 0x3C)[0]
        if self.raw[header : header + 4] != b"PE\0\0" or self._unpack("<H", header + 24)[0] != 0x20B:
            raise ValueError("not a 64-bit Windows library")
        count, optional = self._unpack("<H", header + 6)[0], self._unpack("<H", header + 20)[0]
        table = header + 24 + optional
        self._sections = [self._unpack("<8xIIII", table + 40 * i) for i in range(count)]
        self.functions = self._exports(self.at(self._unpack("<I", header + 24 + 112)[0]))

    def _unpack(self, form: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from(form, self.raw, at)

    def at(self, address: int) -> int:
        """Return the position in the file of a relative virtual address."""
        for size, start, raw_size, raw in self._sections:
            if start <= address < start + max(size, raw_size):
                return address - start + raw
        raise ValueError(f"no section holds {address:#x}")

    def text(self, at: int) -> str:
        return self.raw[at : self.raw.index(0, at)].decode("ascii", "replace")

    def _exports(self, at: int) -> dict[str, int]:
        (count,) = self._unpack("<I", at + 24)
        functions, names, ordinals = (self.at(address) for address in self._unpack("<III", at + 28))
        addresses = {}
        for i in range(count):
            name = self.text(self.at(self._unpack("<I", names + 4 * i)[0]))
            (ordinal,) = self._unpack("<H", ordinals + 2 * i)
            (addresses[name],) = self._unpack("<I", functions + 4 * ordinal)
        return addresses

    def is_stub(self, name: str) -> bool:
        """Return whether the function only reports its name: sub rsp, 40; lea rcx, [module]; lea rdx, [name]."""
        address = self.functions[name]
        body = self.raw[self.at(address) : self.at(address) + _STUB]
        if body[:7] != b"\x48\x83\xec\x28\x48\x8d\x0d" or body[11:14] != b"\x48\x8d\x15":
            return False
        (distance,) = struct.unpack_from("<i", body, 14)
        return self.text(self.at(address + 18 + distance)) == name


def patched(library: Path) -> bytes:
    """Return the library with code for its complex stubs; unchanged if it has no such stubs.

    Raises:
        ValueError: it is not a 64-bit library of Windows.
    """
    image = _Library(library.read_bytes())
    for name, (code, target) in _BODIES.items():
        if name not in image.functions or not image.is_stub(name):
            continue
        address = image.functions[name]
        end = b"\xe9" + struct.pack("<i", image.functions[target] - (address + len(code) + 5)) if target else _RETURN
        body = code + end
        image.raw[image.at(address) : image.at(address) + len(body)] = body
    return bytes(image.raw)
