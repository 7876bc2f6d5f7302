"""Exchange messages with a worker: lines of fields on two pipes, tensors as files in an exchange folder.

Spaces separate the fields of a line. A field is percent-encoded UTF-8; an empty field is a single ``%``. Both sides
handle one request at a time. Every answer ends with ``ok`` or with ``fail KIND MESSAGE``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

import numpy as np

from dmlprep.portable.limits import machine_memory
from dmlprep.process.results import open_result, read_result

_OF_NUMPY = frozenset(
    ["bool", "float16", "float32", "float64", "complex64", "complex128"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
_OF_ML_DTYPES = ("bfloat16", "float8", "float6", "float4", "int4", "uint4", "int2", "uint2")
"""Prefixes of the type names of ml_dtypes. numpy accepts many other names as types: "O", "V8", "f4,f4" ..."""

_PLAIN = "/:=,+()[]$?*@#!<>"


def encode(fields: Iterable[str]) -> bytes:
    """Return the fields as one line of bytes, with its line feed."""
    raw = (field.encode("utf-8", "surrogateescape") for field in fields)
    return b" ".join(quote_from_bytes(field, _PLAIN).encode() or b"%" for field in raw) + b"\n"


def decode(line: bytes) -> list[str]:
    """Return the fields of one line. Bytes that are not UTF-8 become lone surrogates, never an error."""
    parts = line.rstrip(b"\r\n").split(b" ")
    return [unquote_to_bytes(b"" if part == b"%" else part).decode("utf-8", "surrogateescape") for part in parts]


def numpy_dtype(name: str) -> np.dtype:
    """Return the dtype of a type name of ``ValueInfo`` (``float32``).

    Types that numpy lacks come from ml_dtypes; ``string`` is ``object``.

    Raises:
        TypeError: numpy and ml_dtypes have no such type.
    """
    if name == "string":
        return np.dtype(object)
    if name in _OF_NUMPY:
        return np.dtype(name)
    import ml_dtypes

    if not name.startswith(_OF_ML_DTYPES) or not hasattr(ml_dtypes, name):
        raise TypeError(f"unknown element type {name!r}")
    dtype: np.dtype = np.dtype(getattr(ml_dtypes, name))
    return dtype


def write_tensor(path: Path, array: np.ndarray) -> None:
    """Write the elements of a tensor to a file: raw, little-endian, in C order; strings as UTF-8, each ended by a NUL.

    Raises:
        ValueError: a string contains a NUL, or is not valid Unicode.
        OSError: the file cannot be written.
    """
    with path.open("wb") as file:
        if array.dtype.kind in "OUST":
            for item in array.reshape(-1):
                data = (item.decode("utf-8") if isinstance(item, bytes) else str(item)).encode("utf-8")
                if b"\0" in data:
                    raise ValueError("a string tensor contains a NUL character")
                file.write(data + b"\0")
        elif array.size:
            if array.dtype.byteorder == ">":
                array = array.astype(array.dtype.newbyteorder("<"))
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def read_tensor(
    path: Path, dtype: str, shape: tuple[int, ...], *, mapped: bool = False, limit: int | None = None
) -> np.ndarray:
    """Return the tensor that ``write_tensor`` wrote.

    Args:
        mapped: read from the page cache without a copy. This is safe only if no process changes or truncates the file.
        limit: the largest accepted size in bytes; ``None``: the system memory.

    Raises:
        ValueError: the file's size does not match type and shape, it is above ``limit``, or there is no such tensor.
        TypeError: numpy and ml_dtypes have no such type.
        OSError: the file does not exist, or is a link.
    """
    limit = (machine_memory() or 1 << 62) if limit is None else limit
    if dtype == "string":
        items = read_result(path, limit).split(b"\0")[:-1]
        return np.array([item.decode("utf-8", "replace") for item in items], dtype=object).reshape(shape)
    kind = numpy_dtype(dtype)
    if kind.hasobject or not kind.itemsize or min(shape, default=0) < 0:
        raise ValueError(f"invalid tensor {dtype}{list(shape)}")
    size = kind.itemsize * math.prod(shape)
    with open_result(path) as file:
        held = os.fstat(file.fileno()).st_size
        if held != size:
            raise ValueError(f"{path.name} has {held} bytes, {dtype}{list(shape)} needs {size}")
        if size > limit:
            raise ValueError(f"{dtype}{list(shape)} has {size} bytes, at most {limit} are read")
        if size == 0:
            return np.empty(shape, dtype=kind)
        if mapped:
            return np.asarray(np.memmap(file, np.uint8, "c")).view(kind).reshape(shape)
        raw = np.fromfile(file, np.uint8, size)
    if len(raw) < size:
        raise ValueError(f"{path.name} was truncated during reading")
    return raw.view(kind).reshape(shape)
