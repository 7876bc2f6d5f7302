"""Read what a worker left in its folder as what it may be: written by a stranger who still runs.

A file's name may have become a link to a file of the user's, a FIFO that nobody writes to, a device, or a file of 2^60
zeros; and its contents may change meanwhile. So a file is opened without following a link and without waiting, must be
a plain file, and is copied out up to a limit. The worker cannot replace the folder itself.
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
    """A plain file, to be read.

    Raises:
        OSError: it cannot be opened, or is a link.
        ValueError: it is no plain file.
    """
    # O_NONBLOCK: to open a FIFO is to wait for its writer; plain files do not know it.
    with os.fdopen(os.open(path, _FLAGS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path.name} is not a regular file")
        yield file


def read_result(path: Path, limit: int) -> bytes:
    """All of a plain file.

    Raises:
        OSError: it cannot be read, or is a link.
        ValueError: it is no plain file, or longer than ``limit`` bytes.
    """
    with open_result(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ValueError(f"{path.name} has {size} bytes, at most {limit} are read")
        return file.read(size)  # what is appended meanwhile is not read
