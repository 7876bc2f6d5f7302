"""Read what a worker left in its folder as what it may be: written by a stranger who still runs.

A file's name may have become a link to a file of the user's, a FIFO that nobody writes to, a device, or a file of 2^60
zeros; and its contents may change under the reader's eyes. So a file is opened without following a link and without
waiting, must be a plain file, and is copied out as often as it is long, up to a limit. The folder itself is made by
this process, and the worker cannot replace it: in the sandbox it is the root of a mount.
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
    with os.fdopen(os.open(path, _FLAGS), "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{path.name} is no plain file")
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
            raise ValueError(f"{path.name} holds {size} bytes, more than the {limit} that are read")
        data = bytearray()
        # What is appended meanwhile is not read.
        while len(data) < size and (part := file.read(size - len(data))):
            data += part
        return bytes(data)


def machine_memory() -> int:
    """Bytes of memory that the machine has; a large number where the system does not tell in this way."""
    if hasattr(os, "sysconf"):
        with contextlib.suppress(OSError, ValueError):
            return int(os.sysconf("SC_PHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
    return 1 << 62
