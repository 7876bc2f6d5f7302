"""The thread that starts child processes, so that none of them dies with a thread of the caller's."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

__all__ = ["spawn"]

T = TypeVar("T")


def spawn(start: Callable[[], T]) -> T:
    """Call ``start`` in the thread that starts all children of this process, and give what it gives.

    Linux kills a process with ``PR_SET_PDEATHSIG`` when the *thread* that started it ends, so they are not started from
    threads that callers may end early.
    """
    return _thread(os.getpid()).submit(start).result()


@cache
def _thread(_pid: int) -> ThreadPoolExecutor:
    # By the process: a forked one has none of its parent's threads.
    return ThreadPoolExecutor(1, thread_name_prefix="dmlprep-spawner")
