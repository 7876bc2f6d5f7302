"""Write a zip that is the same each time: nothing compressed, one date, members in the order they were given.

Weights hardly shrink, and compressed bytes differ between versions of zlib. Large files stream through, 1 MiB at a
time, and are digested on the way.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, cast

import numpy as np

from dmlprep.portable.arrays import Array
from dmlprep.record.aliases import Progress
from dmlprep.record.buckets import FileEntry

_DATE = (1980, 1, 1, 0, 0, 0)
_PIECE = 1 << 20


class ZipWriter:
    """A zip in the making; ``files`` is what is in it. Leaving it closes the zip."""

    def __init__(self, file: BinaryIO, total: int, progress: Progress) -> None:
        self.files: dict[str, FileEntry] = {}
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True)
        self._total = max(total, 1)
        self._done = 0
        self._progress = progress

    @contextmanager
    def _member(self, name: str, size: int) -> Iterator[Callable[[bytes | memoryview], int]]:
        info = zipfile.ZipInfo(name, _DATE)
        info.create_system = 3
        info.external_attr = 0o644 << 16
        info.file_size = size
        digest = hashlib.sha256()
        written = 0

        with self._zip.open(info, "w", force_zip64=size > 1 << 31) as member:

            def write(piece: bytes | memoryview) -> int:
                nonlocal written
                digest.update(piece)
                written += len(piece)
                self._done += len(piece)
                member.write(piece)
                return len(piece)

            yield write
        self.files[name] = FileEntry(written, digest.hexdigest())

    def add_bytes(self, name: str, content: bytes) -> None:
        """A small file."""
        with self._member(name, len(content)) as write:
            write(content)

    def add_file(self, name: str, path: Path) -> None:
        """A file of any size, 1 MiB at a time."""
        with path.open("rb") as source, self._member(name, path.stat().st_size) as write:
            while piece := source.read(_PIECE):
                write(piece)
                self._progress(min(self._done / self._total, 1.0), f"packing {path.name}")

    def add_array(self, name: str, array: Array) -> None:
        """An array as ``.npy``."""
        if array.dtype.kind == "V":
            # numpy's files hold no bfloat16; FP32 holds its values exactly.
            array = array.astype(np.float32)
        array = array.astype(str) if array.dtype.kind == "O" else np.ascontiguousarray(array).reshape(array.shape)
        with self._member(name, array.nbytes + 1024) as write:
            np.lib.format.write_array(cast(IO[bytes], _Sink(write)), array, version=(1, 0), allow_pickle=False)

    def __enter__(self) -> ZipWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._zip.close()
            return
        # Half a zip: closed so that nothing of it lives on, whatever the disk says to that.
        with suppress(OSError, ValueError):
            self._zip.close()


class _Sink:
    """What numpy writes to."""

    def __init__(self, write: Callable[[bytes | memoryview], int]) -> None:
        self.write = write
