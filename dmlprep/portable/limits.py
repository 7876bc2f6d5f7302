"""The memory limit of a worker process: a share of the system memory, or the value that the user sets.

Sources: cgroups(7); docs.kernel.org "Control Group v2" (memory.max) and "Memory Resource Controller"
(memory.limit_in_bytes); learn.microsoft.com GlobalMemoryStatusEx, MEMORYSTATUSEX.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

SHARE = 0.8
"""Default limit as a share of the system memory. The rest keeps the system and this process alive."""

VARIABLE = "DMLPREP_MEMORY_LIMIT"
"""Environment variable with the user's limit: ``12G``, ``800M``, ``50%`` of the system memory, or ``none``."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class MemoryLimit:
    """A limit for the private memory of a process with its descendants, in bytes; 0: no limit.

    ``why`` is the reason for the limit, for errors.
    """

    nbytes: int
    why: str = ""

    def exceeded(self, held: int) -> str:
        """Return the end of an error sentence about a process that used ``held`` bytes; its subject is the process."""
        why = f" ({self.why})" if self.why else ""
        return f"used {held / 2**20:.0f} MiB, the limit is {self.nbytes / 2**20:.0f} MiB{why}, and was stopped"


def memory_limit() -> MemoryLimit:
    """Return the limit from the environment variable, or the default.

    Raises:
        ValueError: the environment variable has no valid limit.
    """
    value = os.environ.get(VARIABLE, "").strip()
    if not value:
        return MemoryLimit(int(SHARE * machine_memory()), f"{SHARE:g} of system memory")
    if value.lower() == "none":
        return MemoryLimit(0)
    match = re.fullmatch(r"(?i)(\d{1,15}(?:\.\d{1,9})?)\s*(?:([KMGT]?)(?:i?B)?|(%))", value)
    if match is None or not float(match[1]):
        raise ValueError(f"{value!r} is not a memory limit: write 12G, 800M, 50% of system memory, or none")
    scale = machine_memory() / 100 if match[3] else _UNITS[match[2].upper()]
    return MemoryLimit(int(float(match[1]) * scale), f"{VARIABLE}={value}")


class _Status(ctypes.Structure):
    """The structure MEMORYSTATUSEX."""

    _fields_ = (("size", ctypes.c_uint32), ("load", ctypes.c_uint32), ("numbers", ctypes.c_uint64 * 7))


_TOTAL_PAGE_FILE = 2
"""The index in ``numbers`` of ullTotalPageFile, the memory that all processes together may commit."""


@lru_cache(maxsize=None)  # noqa: UP033 - the kit's Python
def machine_memory() -> int:
    """Return the size in bytes of the memory that this process can use; 0 if unknown.

    It is all memory, or less in a container. On Windows it is memory and page file together, because Windows counts
    memory when a process reserves it.
    """
    if sys.platform == "win32":
        status = _Status()
        status.size = ctypes.sizeof(status)
        known = ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status))
        return int(status.numbers[_TOTAL_PAGE_FILE]) if known else 0
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
    return min([whole, *cgroup_limits(Path("/proc/self"))])


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def cgroup_limits(process: Path) -> Iterator[int]:
    """Yield the memory limits, in bytes, of a process's control groups and of their parents (cgroup versions 1 and 2).

    ``process`` is its folder, such as ``/proc/self``.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        groups = [line.split(":", 2) for line in _lines(process / "cgroup")]
        for line in _lines(process / "mountinfo"):
            # proc(5): number, parent, device, root, mount point, options, optional fields, "-", type, source, options
            fields, _, rest = line.partition(" - ")
            kind, options = rest.split()[0], rest.split()[-1].split(",")
            root, point = fields.split()[3:5]
            if kind == "cgroup2":
                path, name = next(p for _, c, p in groups if not c), "memory.max"
            elif kind == "cgroup" and "memory" in options:
                path, name = next(p for _, c, p in groups if "memory" in c.split(",")), "memory.limit_in_bytes"
            else:
                continue
            inside = path[len(root.rstrip("/")) :] if path.startswith(root) else ""
            here = Path(point) / inside.strip("/")
            for folder in (here, *(p for p in here.parents if str(p).startswith(point))):
                with contextlib.suppress(OSError, ValueError):  # "max", or the file does not exist
                    yield int((folder / name).read_text(encoding="ascii"))
