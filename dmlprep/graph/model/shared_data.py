"""One data file for several models, which stores tensors with the same digest once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import onnx_ir as ir

from dmlprep.graph.model.tensors import CHUNK_BYTES, append_aligned, as_mapped

Progress = Callable[[int], None]


@dataclass
class SharedData:
    """A data file that grows by each model's tensors. Its earlier content never moves.

    It is open only while a model is saved: on Windows, ONNX Runtime cannot open a file that another program writes.

    Attributes:
        path: path of the file, which is created with the first tensor.
        written: size in bytes of the tensors that the last model added to the file.
        shared: size in bytes of the last model's tensors that the file had already, each counted once.
    """

    path: Path
    written: int = 0
    shared: int = 0
    _places: dict[tuple[str, int], int] = field(default_factory=dict, repr=False)
    """(SHA-256, size in bytes) of a tensor -> offset in the file."""
    _read: dict[tuple[Path, int, int], int] = field(default_factory=dict, repr=False)
    """Position in a file of the original (path, offset, length) -> offset in this file."""
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256, repr=False)
    _hashed: int = 0

    @property
    def nbytes(self) -> int:
        """The size of the file in bytes."""
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def sha256(self) -> str:
        """The SHA-256 of the whole file, in hexadecimal; reads only the bytes that are new since the last time."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._hashed)
                while piece := file.read(CHUNK_BYTES):
                    self._digest.update(piece)
                    self._hashed += len(piece)
        return self._digest.hexdigest()

    def add(self, tensors: list[ir.TensorProtocol], progress: Progress | None = None) -> dict[int, int]:
        """Add the tensors of one model to the file, unless it has them; return ``id`` of a tensor -> offset in bytes.

        Raises:
            OSError: the file cannot be written, or a file of weights cannot be read.
            InputError: DP015, a file of weights has become shorter.
        """
        self.written = self.shared = 0
        if not tensors:
            return {}
        before = set(self._places.values())
        offsets: dict[int, int] = {}
        # "r+" and not "a": ``copy_file_range`` does not accept a file opened for appending.
        with self.path.open("r+b" if self.path.exists() else "x+b") as file:
            for tensor in tensors:
                if id(tensor) not in offsets:
                    file.seek(0, os.SEEK_END)
                    offsets[id(tensor)] = self._place(tensor, file, progress)
        sizes = {offsets[id(tensor)]: tensor.nbytes for tensor in tensors}
        self.shared = sum(nbytes for offset, nbytes in sizes.items() if offset in before)
        self.written = sum(sizes.values()) - self.shared
        return offsets

    def _place(self, tensor: ir.TensorProtocol, file: BinaryIO, progress: Progress | None) -> int:
        mapped = as_mapped(tensor)
        source = (mapped.path, mapped.offset, mapped.length) if mapped is not None else None
        if source is not None and source in self._read:
            if progress:
                progress(tensor.nbytes)
            return self._read[source]
        end = file.tell()
        offset = append_aligned(tensor, file, progress)
        # Read back rather than computed first, so that a lazy tensor is computed only once.
        known = self._places.setdefault((_digest_of(file, offset, tensor.nbytes), tensor.nbytes), offset)
        if known != offset:
            file.truncate(end)
        if source is not None:
            self._read[source] = known
        return known


def _digest_of(file: BinaryIO, offset: int, length: int) -> str:
    file.seek(offset)
    digest = hashlib.sha256()
    while length:
        piece = file.read(min(length, CHUNK_BYTES))
        if not piece:
            raise OSError("the file was truncated during writing")
        digest.update(piece)
        length -= len(piece)
    return digest.hexdigest()
