"""Write a reproducible zip: nothing compressed, one fixed date, files in the order in which they are added.

Weights hardly shrink, and compressed bytes differ between versions of zlib. Large files are copied 1 MiB at a time, and
their SHA-256 is computed on the way.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, cast

import numpy as np

from dmlprep.core.files.reasons import pieces
from dmlprep.portable.arrays import Array
from dmlprep.record.aliases import Progress
from dmlprep.record.buckets import FileEntry

_DATE = (1980, 1, 1, 0, 0, 0)


class ZipWriter:
    """A context manager that writes a zip into an open file, and closes the zip at the end.

    ``files``: name -> size and SHA-256 of the files that were added.

    Args:
        total: size of all files in bytes, for ``progress``, which is called with the finished share and a text.
    """

    def __init__(self, file: BinaryIO, total: int, progress: Progress) -> None:
        self.files: dict[str, FileEntry] = {}
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True)
        self._total = max(total, 1)
        self._done = 0
        self._progress = progress

    @contextmanager
    def _member(self, name: str, size: int) -> Iterator[_Member]:
        info = zipfile.ZipInfo(name, _DATE)
        info.create_system = 3
        info.external_attr = 0o644 << 16
        info.file_size = size
        with self._zip.open(info, "w", force_zip64=size > 1 << 31) as file:
            member = _Member(file)
            yield member
        self._done += member.size
        self.files[name] = FileEntry(member.size, member.digest.hexdigest())

    def add_bytes(self, name: str, content: bytes) -> None:
        """Add a file with this content."""
        with self._member(name, len(content)) as member:
            member.write(content)

    def add_file(self, name: str, path: Path) -> None:
        """Add a file of any size, 1 MiB at a time."""
        with self._member(name, path.stat().st_size) as member:
            for piece in pieces(path, code="DP015"):  # it could be read before
                member.write(piece)
                share = (self._done + member.size) / self._total
                self._progress(min(share, 1.0), f"packing {path.name}")

    def add_array(self, name: str, array: Array) -> None:
        """Add an array as a ``.npy`` file; bfloat16 becomes FP32, and an array of objects becomes text."""
        if array.dtype.kind == "V":
            # A numpy file cannot hold bfloat16; FP32 represents its values exactly.
            array = array.astype(np.float32)
        array = array.astype(str) if array.dtype.kind == "O" else np.ascontiguousarray(array).reshape(array.shape)
        with self._member(name, array.nbytes + 1024) as member:
            np.lib.format.write_array(cast(IO[bytes], member), array, version=(1, 0), allow_pickle=False)

    def __enter__(self) -> ZipWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._zip.close()
            return
        # Half a zip: release its file; errors of the disk do not matter.
        with suppress(OSError, ValueError):
            self._zip.close()


class _Member:
    """A file that is being written into the zip; ``size`` and ``digest`` cover the bytes written so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.size, self.digest = file, 0, hashlib.sha256()

    def write(self, piece: bytes | memoryview) -> int:
        self.digest.update(piece)
        self.size += len(piece)
        return self._file.write(piece)
