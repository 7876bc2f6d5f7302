"""Read a worker's result files safely: an untrusted process that still runs has written them.

A file may have become a link to a user's file, a FIFO, a device, or a file of 2^60 zeros. Its content may change during
the read. So a file must be a plain file. It is opened without following links and without waiting, and read up to a
limit. The worker cannot replace the folder itself.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))


@contextlib.contextmanager
def open_result(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file to read its bytes, for a ``with`` block.

    Raises:
        OSError: it cannot be opened, or is a link.
        ValueError: it is not a plain file.
    """
    # O_NONBLOCK: opening a FIFO would wait for its writer; the flag has no effect on plain files.
    with os.fdopen(os.open(path, _FLAGS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path.name} is not a regular file")
        yield file


def read_result(path: Path, limit: int) -> bytes:
    """Return the content of a plain file.

    Raises:
        OSError: it cannot be read, or is a link.
        ValueError: it is not a plain file, or is longer than ``limit`` bytes.
    """
    with open_result(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ValueError(f"{path.name} has {size} bytes, at most {limit} are read")
        return file.read(size)  # data that is appended meanwhile is not read
