"""Measure the memory and CPU time of a worker, and end a kit's worker with its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1

_ANEW, _SELDOM = 1.0, 100
"""The pause between two searches for the members of a family is the longer of two: this number of seconds, and this
multiple of the search time."""


class Family:
    """A process (the leader), its process group and all its descendants.

    The members are searched for only sometimes, because a search takes milliseconds.
    """

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self._members = [leader]  # a new process has no children
        self._again = time.monotonic() + _ANEW

    def private_bytes(self) -> int:
        """Return the private memory of all members in bytes (anonymous and shared, no mapped files); 0 except on Linux.

        Mapped weight files do not count: the kernel drops their pages when memory is short.
        """
        return sum(_private(pid) for pid in self._known())

    def cpu_seconds(self) -> float:
        """Return the CPU seconds that the members have used; 0 on systems other than Linux."""
        ticks = sum(sum(int(field) for field in _stat(pid)[11:15]) for pid in self._known())
        return ticks / os.sysconf("SC_CLK_TCK") if ticks else 0.0

    def _known(self) -> list[int]:
        began = time.monotonic()
        if began >= self._again:
            self._members = [*_family(self.leader)]
            now = time.monotonic()
            self._again = now + max(_ANEW, _SELDOM * (now - began))
        return self._members


def _stat(pid: int | str) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` after the command's name: state, parent, group ... (proc(5)).

    Empty for a process that has ended.
    """
    with contextlib.suppress(OSError):
        # The fields after the command's name, which is in parentheses and may contain any character: state, parent,
        # group.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


def _private(pid: int) -> int:
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) * 1024
    return total


def _family(leader: int) -> list[int]:
    """Return the ids of the living members of a family: the leader, its process group and all descendants."""
    parents: dict[int, int] = {}
    members: set[int] = set()
    if not Path("/proc").is_dir():
        return []
    for pid in (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()):
        with contextlib.suppress(ValueError, IndexError):
            stat = _stat(pid)
            parents[pid] = int(stat[1])
            if int(stat[2]) == leader:
                members.add(pid)
    queue = [leader, *members]
    while queue:
        # Some servers (such as Wine's) leave the group, but remain descendants of the sandbox's first process.
        above = queue.pop()
        below = [pid for pid, parent in parents.items() if parent == above and pid not in members]
        members.update(below)
        queue += below
    return [pid for pid in dict.fromkeys((leader, *members)) if pid in parents]


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process, the worker of a kit, when the process ``parent`` ends (Linux only).

    If ``parent`` has already ended, exit with 1.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent ended before the call above
