"""Tensors that stay in their file until their values are needed."""

from __future__ import annotations

import math
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import DTypeLike, NDArray

from dmlprep.core.errors import InputError
from dmlprep.core.files.reasons import reading
from dmlprep.portable.arrays import Array

_ALIGN_BIG, _ALIGN_SMALL, _BIG = 4096, 64, 1 << 20

CHUNK_BYTES = 16 << 20
"""Most bytes of a tensor that are read in one piece when its values are processed piece by piece."""


def cut_short(path: Path, missing: int) -> InputError:
    """Return the error about a file of weights that lost its last ``missing`` bytes since the model was opened."""
    what, fix = f"it ended {missing} bytes early", "run again when no program writes to it"
    return InputError(f"{what}: the file changed during the run", where=str(path), code="DP015", fix=fix)


def copy_range(source: Path, offset: int, length: int, out: BinaryIO) -> None:
    """Append ``length`` bytes of a file, from ``offset`` on, to ``out`` without loading them all into memory.

    Raises:
        OSError: ``source`` cannot be opened, or ``out`` cannot be written.
        InputError: ``source`` cannot be read; DP015, it has become shorter.
    """
    with open(source, "rb", buffering=0) as file:
        file.seek(offset)
        remaining = length
        out.flush()
        while remaining and hasattr(os, "copy_file_range"):
            try:
                done = os.copy_file_range(file.fileno(), out.fileno(), remaining)
            except OSError:
                break  # other file system, or not regular files: read and write below
            if done == 0:
                break
            remaining -= done
        buffer = memoryview(bytearray(min(remaining, CHUNK_BYTES) or 1))
        while remaining:
            with reading(source):
                done = file.readinto(buffer[: min(remaining, len(buffer))])
            if not done:
                raise cut_short(source, remaining)
            out.write(buffer[:done])
            remaining -= done


def little_endian(values: Array) -> memoryview:
    """Return the content of an array as little-endian bytes."""
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


class LazyTensor(ABC):
    """A tensor (onnx-ir's TensorProtocol), backed by ``raw``, whose values are computed when they are read or saved."""

    def __init__(
        self, raw: object, dtype: ir.DataType, shape: ir.ShapeProtocol, name: str | None, doc_string: str | None = None
    ) -> None:
        self.raw, self.dtype, self.shape = raw, dtype, shape
        self.name, self.doc_string = name, doc_string
        self.metadata_props: MutableMapping[str, str] = {}
        self.meta: MutableMapping[str, object] = {}

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape.numpy())

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * self.dtype.bitwidth // 8

    @abstractmethod
    def numpy(self) -> Array:
        """Return all values, [dims]."""

    def tobytes(self) -> bytes:
        """Return all values as little-endian bytes."""
        return little_endian(self.numpy()).tobytes()

    def tofile(self, file: BinaryIO) -> None:
        """Append the values to a file as little-endian bytes."""
        file.write(little_endian(self.numpy()))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, *, stream: object = None) -> object:
        return self.numpy().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.numpy().__dlpack_device__()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {self.dtype}, {self.shape}, of {self.raw!r})"


class MappedTensor(LazyTensor):
    """A tensor in a file: [dims] elements, little-endian, at ``offset`` bytes.

    ``numpy()`` maps just this tensor and keeps no reference: the mapping ends with the array. Each method that reads
    the file raises InputError (DP015) if it has become shorter.
    """

    def __init__(
        self,
        path: Path,
        offset: int,
        length: int,
        dtype: ir.DataType,
        shape: ir.Shape,
        name: str,
        doc_string: str | None = None,
    ) -> None:
        super().__init__(path, dtype, shape, name, doc_string)
        self.path, self.offset, self.length = path, offset, length
        shape.freeze()

    @property
    def nbytes(self) -> int:
        """Size in bytes, in the file."""
        return self.length

    def map_bytes(self, start: int, length: int) -> NDArray[np.uint8]:
        """Return ``length`` bytes of the tensor from byte ``start`` on, mapped from its file.

        Raises:
            InputError: DP015, the file has become shorter.
        """
        if length == 0:
            return np.empty(0, np.uint8)
        page = mmap.ALLOCATIONGRANULARITY
        at = self.offset + start
        base = at // page * page
        with open(self.path, "rb") as file:
            if (missing := at + length - os.fstat(file.fileno()).st_size) > 0:
                raise cut_short(self.path, missing)
            mapped = mmap.mmap(file.fileno(), length + at - base, access=mmap.ACCESS_READ, offset=base)
        return np.frombuffer(mapped, np.uint8, length, at - base)

    def _as_numpy(self, raw: Array, shape: tuple[int, ...]) -> Array:
        if self.dtype.bitwidth < 8 or self.dtype.numpy().itemsize * 8 != self.dtype.bitwidth:
            proto = onnx.TensorProto(data_type=self.dtype.value, dims=shape, raw_data=raw.tobytes())
            return ir.serde.TensorProtoTensor(proto).numpy()
        return raw.view(np.dtype(self.dtype.numpy())).reshape(shape)

    def numpy(self) -> Array:
        """Return the values, [dims], as a read-only array that is mapped from the file.

        Raises:
            InputError: DP015, the file has become shorter.
        """
        return self._as_numpy(self.map_bytes(0, self.length), tuple(self.shape.numpy()))

    def elements(self, start: int, stop: int) -> Array:
        """Return elements ``start`` to before ``stop`` of the flattened tensor; only for types of whole bytes."""
        size = self.dtype.bitwidth // 8
        return self._as_numpy(self.map_bytes(start * size, (stop - start) * size), (stop - start,))

    def tobytes(self) -> bytes:
        """Return the bytes, read from the file."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            read = file.read(self.length)
        if len(read) < self.length:
            raise cut_short(self.path, self.length - len(read))
        return read

    def tofile(self, file: BinaryIO) -> None:
        """Copy the bytes into another file."""
        copy_range(self.path, self.offset, self.length, file)

    def __repr__(self) -> str:
        return f"MappedTensor({self.name}, {self.dtype}, {self.shape}, {self.path.name}@{self.offset})"


class ReshapedTensor(LazyTensor):
    """The elements of another tensor in another shape; they are not read before they are needed."""

    def __init__(self, source: ir.TensorProtocol, sizes: Sequence[int]) -> None:
        super().__init__(source, source.dtype, ir.Shape(sizes), source.name, source.doc_string)
        self.source = source
        if math.prod(sizes) != int(source.size):
            raise ValueError(f"{source.size} elements do not fit {list(sizes)}")

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return int(self.source.nbytes)

    def numpy(self) -> Array:
        """Return the array with the new shape."""
        return np.asarray(self.source.numpy()).reshape(tuple(self.shape.numpy()))

    def tobytes(self) -> bytes:
        """Return the bytes of the source."""
        return self.source.tobytes()

    def tofile(self, file: BinaryIO) -> None:
        """Write the bytes of the source into a file."""
        write_to(self.source, file)


def as_mapped(tensor: object) -> MappedTensor | None:
    """Return the tensor itself if it is a ``MappedTensor`` (its values are in a file), otherwise ``None``."""
    return tensor if isinstance(tensor, MappedTensor) else None


def chunks(tensor: ir.TensorProtocol, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Array]:
    """Yield the flattened values of a tensor in pieces of at most ``chunk_bytes``.

    Only one piece is in memory if the tensor is mapped and its elements are whole bytes; otherwise all of it is.
    """
    mapped = as_mapped(tensor)
    flat = None if mapped is not None and mapped.dtype.bitwidth >= 8 else np.asarray(tensor.numpy()).reshape(-1)
    itemsize = tensor.dtype.bitwidth // 8 if flat is None else flat.itemsize
    step = max(1, chunk_bytes // max(1, itemsize))
    for start in range(0, tensor.size, step):
        if flat is not None:
            yield flat[start : start + step]
        elif mapped is not None:
            yield mapped.elements(start, min(mapped.size, start + step))


def write_to(tensor: ir.TensorProtocol, file: BinaryIO) -> None:
    """Append a tensor's content to a file, without loading it whole if the tensor has ``tofile``."""
    if hasattr(tensor, "tofile"):
        tensor.tofile(file)
    else:
        file.write(tensor.tobytes())


def append_aligned(tensor: ir.TensorProtocol, file: BinaryIO, progress: Callable[[int], None] | None = None) -> int:
    """Append a tensor's content at an aligned offset, so that ONNX Runtime can map it; return the offset in bytes."""
    file.write(b"\0" * (-file.tell() % (_ALIGN_BIG if tensor.nbytes >= _BIG else _ALIGN_SMALL)))
    offset = file.tell()
    write_tensor(tensor, file, progress)
    return offset


def write_tensor(tensor: ir.TensorProtocol, file: BinaryIO, progress: Callable[[int], None] | None = None) -> None:
    """Append a tensor's content to a file, and call ``progress`` with its size in bytes.

    Raises:
        OSError: the tensor wrote more or fewer bytes than its size.
    """
    before = file.tell()
    write_to(tensor, file)
    file.flush()
    # copy_file_range moves the descriptor without the buffer: get the position from the descriptor
    file.seek(os.lseek(file.fileno(), 0, os.SEEK_CUR))
    if file.tell() - before != tensor.nbytes:
        raise OSError(f"tensor {tensor.name!r} wrote {file.tell() - before} bytes instead of {tensor.nbytes}")
    if progress:
        progress(tensor.nbytes)
