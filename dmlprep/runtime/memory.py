"""How much memory a worker holds, and that it dies before its parent does."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

__all__ = ["die_with_parent", "prefer_as_victim", "private_bytes"]

_PR_SET_PDEATHSIG = 1


def private_bytes(leader: int) -> int:
    """Private bytes (anonymous and shared memory, not mapped files) of a process, its group and all below; 0 off Linux.

    Mapped weight files do not count: the kernel drops their pages when memory is short.
    """
    children: dict[int, list[int]] = {}
    members: set[int] = set()
    if not Path("/proc").is_dir():
        return 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The fields after the command's name, which is in parentheses and may hold anything: state, parent, group.
            stat = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(stat[1]), []).append(int(entry.name))
            if int(stat[2]) == leader:
                members.add(int(entry.name))
    queue = [leader, *members]
    while queue:
        # Servers that left the group (Wine's does) are still below the sandbox's first process.
        below = [pid for pid in children.get(queue.pop(), ()) if pid not in members]
        members.update(below)
        queue += below
    total = 0
    for pid in members:
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += int(line.split()[1]) * 1024
    return total


def die_with_parent(parent: int) -> None:
    """Called by a worker: be killed when the process ``parent`` ends. Linux only; elsewhere the closed pipe tells."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it ended before the call above


def prefer_as_victim() -> None:
    """Called by a worker: when memory runs out, the kernel ends this process first."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
