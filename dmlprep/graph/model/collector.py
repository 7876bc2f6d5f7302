"""Pause Python's cyclic garbage collector while a large graph of live objects is built.

Every collection visits all objects again and frees none. Without it, the time per node is the same from 1,000 nodes to
100,000 (tests/benchmarks/placement.py --speed).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the garbage collector inside the ``with`` block, and resume it afterwards if it ran before."""
    ran = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if ran:
            gc.enable()
