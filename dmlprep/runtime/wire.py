"""How a session talks with its worker: lines of fields on two pipes, tensors as files in an exchange folder.

The same words are spoken by the Python worker (``worker.py``) and by the host program of the Linux runtime
(``native/host.c``), so that one session class serves all devices. A line is fields parted by one space; a field is
percent-encoded UTF-8, an empty field is a lone ``%``. Both sides handle one request at a time.

    request                                     answer
    hello                                       device KEY VALUE ...
    option KEY VALUE ... load ID MODEL          input NAME TYPE DIM ... · output NAME TYPE DIM ...
    feed NAME TYPE FILE DIM ...                 value NAME TYPE FILE DIM ... · sequence NAME COUNT, then its values
      want NAME ... run ID                        · none NAME
    placement ID                                node PROVIDER TYPE DOMAIN NAME ...
    timings ID                                  file PROFILE
    close ID · quit

Only the last word of a request line is answered; every answer ends with ``ok`` or with ``fail KIND MESSAGE``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

import numpy as np

from dmlprep.runtime.types import Dim

__all__ = ["decode", "dims_from_fields", "dims_to_fields", "encode", "numpy_dtype", "read_tensor", "write_tensor"]

_PLAIN = "/:=,+()[]$?*@#!<>"


def encode(fields: Iterable[str]) -> bytes:
    """One line, with its line feed."""
    return b" ".join(quote_from_bytes(_bytes(field), _PLAIN).encode() or b"%" for field in fields) + b"\n"


def decode(line: bytes) -> list[str]:
    """The fields of one line. Bytes that are no UTF-8 come back as lone surrogates, never as an error."""
    parts = line.rstrip(b"\r\n").split(b" ")
    return [unquote_to_bytes(b"" if part == b"%" else part).decode("utf-8", "surrogateescape") for part in parts]


def _bytes(field: str) -> bytes:
    return field.encode("utf-8", "surrogateescape")


def dims_to_fields(dims: Sequence[Dim]) -> list[str]:
    """``2``, ``$batch`` for a named dimension, ``?`` for one that has neither."""
    return ["?" if dim is None else f"${dim}" if isinstance(dim, str) else str(dim) for dim in dims]


def dims_from_fields(fields: Sequence[str]) -> tuple[Dim, ...]:
    """The inverse of ``dims_to_fields``."""
    return tuple(None if field == "?" else field[1:] if field.startswith("$") else int(field) for field in fields)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype of a type name of ``ValueInfo``; types numpy lacks come from ml_dtypes.

    Raises:
        TypeError: numpy and ml_dtypes have no such type.
    """
    if name == "string":
        return np.dtype(object)
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name, name))


def write_tensor(path: Path, array: np.ndarray) -> None:
    """Raw little-endian elements in C order; strings as UTF-8, each ended by a NUL."""
    if array.dtype.kind in "OUST":
        with path.open("wb") as file:
            for item in array.reshape(-1):
                data = item if isinstance(item, bytes) else str(item).encode("utf-8")
                if b"\0" in data:
                    raise ValueError("a string tensor holds a NUL character")
                file.write(data + b"\0")
        return
    with path.open("wb") as file:
        if array.size:
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def read_tensor(path: Path, dtype: str, shape: tuple[int, ...], *, mapped: bool = False) -> np.ndarray:
    """The tensor that ``write_tensor`` left; ``mapped`` reads from the page cache without a copy.

    Raises:
        ValueError: the file has not the size that type and shape ask for.
    """
    if dtype == "string":
        items = path.read_bytes().split(b"\0")[:-1]
        return np.array([item.decode("utf-8", "replace") for item in items], dtype=object).reshape(shape)
    kind = numpy_dtype(dtype)
    size = kind.itemsize * int(np.prod(shape, dtype=np.int64))
    if path.stat().st_size != size:
        raise ValueError(f"{path.name} holds {path.stat().st_size} bytes, {dtype}{list(shape)} needs {size}")
    if size == 0:
        return np.empty(shape, dtype=kind)
    raw = np.memmap(path, np.uint8, "c") if mapped else np.fromfile(path, np.uint8)
    return np.asarray(raw).view(kind).reshape(shape)
