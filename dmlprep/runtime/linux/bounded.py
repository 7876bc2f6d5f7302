"""Decompress no more than a stated number of bytes: a few bytes that were fetched can stand for terabytes."""

from __future__ import annotations

import lzma
import tarfile
import threading
import zlib
from collections.abc import Iterator
from typing import Protocol

CHUNK = 1 << 18
"""Bytes that are taken at once, at most."""

_DICTIONARY = 1 << 28
"""Bytes of memory that an xz decoder may take; Debian's packages ask for 65 MiB at most (``xz -9``)."""


class TooLarge(Exception):
    """More bytes come out than were allowed."""


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


FAULTS = (EOFError, lzma.LZMAError, zlib.error, TooLarge)
"""What broken or hostile compressed data raises here."""


class Budget:
    """Bytes that may still be made of ``what``; several threads may take from it."""

    def __init__(self, limit: int, what: str) -> None:
        self._limit = self._left = limit
        self._what = what
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Raises ``TooLarge`` where ``size`` bytes more are too many."""
        with self._lock:
            self._left -= size
            if self._left < 0:
                raise TooLarge(f"{self._what} makes more than {self._limit >> 20} MiB")


class _Gzip:
    """zlib's decompressor with the interface of lzma's."""

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
    """The decompressed bytes of ``source``, in pieces of at most ``CHUNK``; ``kind`` is ``xz``, ``gz``, or empty.

    Raises:
        TooLarge: they are more than the budget.
        EOFError: the source ends too early.
        lzma.LZMAError, zlib.error: it is broken, or asks for too much memory.
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
    """A file of decompressed bytes that is read once, from its beginning to its end, as ``tarfile`` does.

    A read of more than ``CHUNK`` bytes and a step back are refused: only the headers of a hostile archive ask for them.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._ready = b""
        self._at = 0
        self._last = b""

    def tell(self) -> int:
        return self._at

    def seek(self, position: int) -> None:
        if position < self._at:
            raise TooLarge("the archive contains backward offsets")
        while self._at < position and self.read(min(CHUNK, position - self._at)):
            pass

    def read(self, size: int) -> bytes:
        if not 0 <= size <= CHUNK:
            raise TooLarge(f"a header of {size} bytes")
        while len(self._ready) < size and (piece := next(self._pieces, b"")):
            self._ready += piece
        self._last, self._ready = self._ready[:size], self._ready[size:]
        self._at += len(self._last)
        return self._last

    def finish(self) -> None:
        """Read what is left, so that the decoder compares its checksum; ``EOFError`` where no tar archive ended here.

        tarfile takes a broken header for the end; the end is a block of zeros.
        """
        if self._last != bytes(tarfile.BLOCKSIZE):
            raise EOFError("its list of files is truncated")
        while self.read(CHUNK):
            pass
