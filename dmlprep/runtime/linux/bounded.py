"""Decompress data up to a limit: a few downloaded bytes can expand to terabytes."""

from __future__ import annotations

import lzma
import tarfile
import threading
import zlib
from collections.abc import Iterator
from typing import Protocol

CHUNK = 1 << 18
"""Limit for the size of one piece, in bytes."""

_DICTIONARY = 1 << 28
"""Limit for the memory of an xz decoder, in bytes. Debian's packages need up to 65 MiB (``xz -9``)."""


class TooLarge(Exception):
    """The data is larger than its limit."""


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


FAULTS = (EOFError, lzma.LZMAError, zlib.error, TooLarge)
"""Exceptions that this module raises for broken or hostile compressed data."""


class Budget:
    """A limit for the bytes that a source (``what``, for errors) may still produce. Several threads may share it."""

    def __init__(self, limit: int, what: str) -> None:
        self._limit = self._remaining = limit
        self._what = what
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Subtract ``size`` bytes; raise ``TooLarge`` if too few remain."""
        with self._lock:
            self._remaining -= size
            if self._remaining < 0:
                raise TooLarge(f"{self._what} makes more than {self._limit >> 20} MiB")


class _Gzip:
    """A decompressor for gzip with the interface of ``lzma.LZMADecompressor``."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def inflate(source: _Source, kind: str, budget: Budget) -> Iterator[bytes]:
    """Yield the decompressed content of ``source`` in pieces of up to ``CHUNK`` bytes.

    Args:
        kind: ``xz``, ``gz``, or empty: not compressed.
        budget: the limit, from which the size of each piece is subtracted.

    Raises:
        TooLarge: the data exceeds the budget.
        EOFError: the source ends too early.
        lzma.LZMAError, zlib.error: the data is broken, or needs too much memory.
    """
    if not kind:
        while piece := source.read(CHUNK):
            budget.take(len(piece))
            yield piece
        return
    decoder = _Gzip() if kind == "gz" else lzma.LZMADecompressor(memlimit=_DICTIONARY)
    while not decoder.eof:
        data = source.read(CHUNK) if decoder.needs_input else b""
        if decoder.needs_input and not data:
            raise EOFError("the compressed data ends too early")
        if piece := decoder.decompress(data, CHUNK):
            budget.take(len(piece))
            yield piece


class Forward:
    """A file of decompressed bytes that is read once, from beginning to end, as ``tarfile`` does.

    It refuses (``TooLarge``) reads of more than ``CHUNK`` bytes and backward seeks, which only the headers of a hostile
    archive request.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._ready = b""
        self._at = 0
        self._last = b""

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, position: int) -> None:
        """Skip to a later position."""
        if position < self._at:
            raise TooLarge("the archive contains backward offsets")
        while self._at < position and self.read(min(CHUNK, position - self._at)):
            pass

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, or fewer at the end."""
        if not 0 <= size <= CHUNK:
            raise TooLarge(f"a header of {size} bytes")
        while len(self._ready) < size and (piece := next(self._pieces, b"")):
            self._ready += piece
        self._last, self._ready = self._ready[:size], self._ready[size:]
        self._at += len(self._last)
        return self._last

    def finish(self) -> None:
        """Read the rest, so that the decoder checks its checksum.

        A tar archive ends with a block of zeros, but tarfile accepts a broken header as the end.

        Raises:
            EOFError: the tar archive is truncated.
        """
        if self._last != bytes(tarfile.BLOCKSIZE):
            raise EOFError("its list of files is truncated")
        while self.read(CHUNK):
            pass
