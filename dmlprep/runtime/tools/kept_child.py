"""A child process that is kept for further calls, and ends after a minute without calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from dmlprep.process.child import Child
from dmlprep.process.failure import FULL, disk_full

_IDLE = 60.0
"""Seconds without a call after which the process ends."""


class KeptChild:
    """A child process that runs one Python file of this folder. The first call starts it; later calls use it again.

    On Linux it may read and write its exchange folder, but no files of the user (``process/confinement.py``).
    """

    def __init__(self, file: str, name: str) -> None:
        self._file, self._name = Path(__file__).with_name(file), name
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._idle: threading.Timer | None = None

    @contextlib.contextmanager
    def used(self) -> Iterator[Child]:
        """Yield the process, and start it if necessary. Only one caller at a time has it.

        An error in the block ends the process, because the state of its library is then unknown.
        """
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            child = self._child
            if child is None or not child.alive:
                child = self._child = Child.of_file(str(self._file), self._name, reads=[])
            try:
                yield child
            except BaseException:
                child.kill()
                raise
            if child.alive:
                self._idle = threading.Timer(_IDLE, self._end_idle)
                self._idle.daemon = True
                self._idle.start()

    def _end_idle(self) -> None:
        with self._lock:
            if self._child is not None and threading.current_thread() is self._idle:
                self._child.close()

    def end(self) -> None:
        """End the process, if there is one; the next call starts another."""
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            if self._child is not None:
                self._child.close()


def hand_over(path: Path, data: bytes) -> None:
    """Write a file of the exchange folder.

    Raises:
        OutputError: the disk is full.
        OSError: it cannot be written for another reason.
    """
    try:
        path.write_bytes(data)
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(path.parent, error) from error
        raise
