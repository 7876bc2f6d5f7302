"""Locks of an installation: one process installs, many use it, and none removes pieces that are in use.

The locks are ``flock`` on two files of the installation. The kernel releases a lock when its process ends for any
reason.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from dmlprep.core.errors import CheckNotRun
from dmlprep.runtime.linux.layout import Layout


def _open(layout: Layout, name: str, *, write: bool) -> int:
    flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
    return os.open(layout.home / name, flags | os.O_CLOEXEC, 0o644)


def _lock(file: int, *, shared: bool) -> bool:
    import fcntl  # Windows has no fcntl, but the command line imports this module there too

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _held(layout: Layout, name: str, state: str, fix: str) -> Iterator[None]:
    file = _open(layout, name, write=True)
    try:
        if not _lock(file, shared=False):
            raise CheckNotRun(f"the runtime is {state} by another process", where=str(layout.home), fix=fix)
        yield
    finally:
        os.close(file)


def installing(layout: Layout) -> contextlib.AbstractContextManager[None]:
    """Lock the installation, for a ``with`` block, against other processes that install or remove it.

    Raises:
        CheckNotRun: another process holds the lock.
        OSError: the folder cannot be written.
    """
    layout.home.mkdir(parents=True, exist_ok=True)
    return _held(layout, ".lock", "being installed or removed", "wait until it ends")


def alone(layout: Layout) -> contextlib.AbstractContextManager[None]:
    """Lock the pieces for exclusive use, for a ``with`` block, to replace or remove them.

    Raises:
        CheckNotRun: sessions of other processes use them.
    """
    return _held(layout, ".use", "in use", "wait until its sessions end")


def use(layout: Layout) -> int | None:
    """Return the descriptor of an open file; while it is open, no process replaces or removes the pieces.

    ``None`` if this user cannot open the file: then this user cannot remove the pieces either.

    Raises:
        CheckNotRun: the pieces are being replaced or removed at the moment.
    """
    try:
        file = _open(layout, ".use", write=os.access(layout.home, os.W_OK))
    except OSError:
        return None
    if _lock(file, shared=True):
        return file
    os.close(file)
    fix = "wait until it ends"
    raise CheckNotRun("the runtime is being installed or removed by another process", where=str(layout.home), fix=fix)
