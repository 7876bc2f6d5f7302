"""Give up the rights that a worker does not need, before it opens a model of somebody else's (Linux, without root).

| kept from it | by |
|---|---|
| files that it was not given, for reading, writing, making, removing and listing | Landlock (Linux 5.13) |
| sockets, programs, processes, signals to others, modes and owners of files | seccomp (``seccomp.py``; x86-64) |
| TCP connections (ABI 4), signals and abstract sockets (ABI 6), once more | Landlock |
| core files, large files, many descriptors | limits |

``confine`` is called by the process itself, while it has one thread: Landlock holds the thread that asks for it and all
that this thread starts. What the kernel lacks is left out (``lacking``). A worker imports this before it is ready, so
it imports little itself. Sources: landlock(7), linux/landlock.h, seccomp(2).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys

from dmlprep.process import seccomp

TYPE_CHECKING = False  # importing typing takes as long as starting Python
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

FILES = 16384
"""Descriptors that one process may have open."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _SECCOMP = 444, 445, 446, 317
_RULESET_VERSION, _PATH_BENEATH = 1, 1
_NO_NEW_PRIVS = 38

_FILTER_MODE, _ASK_ACTION = 1, 2
_FILTER_FLAGS = 1 | 4
"""SECCOMP_FILTER_FLAG_TSYNC, for all threads; and SPEC_ALLOW, else kernels before 5.16 slow the process down (SSBD)."""

_X86_64 = ("x86_64", "AMD64")

# linux/landlock.h: LANDLOCK_ACCESS_FS_*
_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_FILE, _MAKE_REG, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 5, 1 << 8, 1 << 14
_FIRST_ACCESS = (1 << 13) - 1  # what ABI 1 knows
_LATER_ACCESS = {2: 1 << 13, 3: _TRUNCATE, 5: 1 << 15}
"""By the ABI that brought it: REFER, TRUNCATE, IOCTL_DEV."""
_TCP, _SCOPED = 3, 3
"""Binding and connecting (ABI 4); abstract sockets and signals (ABI 6)."""

_READ = _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _REMOVE_FILE | _MAKE_REG | _TRUNCATE

_LIBRARIES = ("/usr", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store", "/etc/ld.so.cache", "/etc/localtime")
_MACHINE = (
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems", "/proc/sys/vm", "/proc/self"),
    *("/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage"),
    *("/dev/urandom", "/dev/random", "/dev/zero"),
)
"""Processors, memory and limits of them, which ONNX Runtime and the C library ask for."""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def landlock_abi() -> int:
    """The version of Landlock that this kernel has; 0 for none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _RULESET_VERSION)))


def takes_filters() -> bool:
    """Whether this kernel takes a filter of system calls, and the filter is written for this processor."""
    if not sys.platform.startswith("linux") or os.uname().machine not in _X86_64:
        return False
    kill = ctypes.c_uint32(0)
    return int(_libc().syscall(_SECCOMP, _ASK_ACTION, 0, ctypes.byref(kill))) == 0


def lacking() -> list[str]:
    """What a worker can do here all the same, one sentence each; empty where ``confine`` keeps it from all."""
    if not sys.platform.startswith("linux"):
        return ["no sandbox on this system: the worker has all rights of the user"]
    abi, filters, missing = landlock_abi(), takes_filters(), []
    if not abi:
        missing.append("the worker can read and write the user's files: Landlock (Linux 5.13) is missing or off")
    if not filters:
        network = "UDP and Unix sockets" if abi >= 4 else "sockets"
        missing.append(f"the worker can use {network} and start programs: a filter needs x86-64 and seccomp")
    return missing


def limits() -> dict[str, int]:
    """The most that a process in a sandbox may have, by the name of the limit (``RLIMIT_...``)."""
    # No file that a program makes here is larger than what it can hold in memory; a log is not, either.
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"CORE": 0, "NOFILE": FILES, "MEMLOCK": 64 << 20, "FSIZE": memory, "RTPRIO": 0}


def confine(read: Iterable[str | os.PathLike[str]] = (), write: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Keep this process, from now on, from all but its memory, its open files, Python's modules, and these paths.

    It may read the files and folders ``read``, and make, write and remove plain files below the folders ``write``.
    Elsewhere than on Linux this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    _set_limits()
    libc = _libc()
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        return  # a kernel before 3.5: nothing of what follows is there
    if abi := landlock_abi():
        _restrict(libc, abi, [os.fspath(path) for path in read], [os.fspath(path) for path in write])
    if os.uname().machine in _X86_64:
        raw = seccomp.program(os.getpid())
        code = ctypes.create_string_buffer(raw, len(raw))
        program = struct.pack("HP", len(raw) // 8, ctypes.addressof(code))
        # Where it fails, the kernel has none (``takes_filters``), or a thread has a filter of its own.
        libc.syscall(_SECCOMP, _FILTER_MODE, _FILTER_FLAGS, ctypes.c_char_p(program))


def limit(kind: int, most: int) -> None:
    """Set a limit (``resource.RLIMIT_...``) of this process, within those that the user has set."""
    import resource

    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def bounding() -> Callable[[int], None]:
    """Return a function that limits memory to so many bytes beyond those of now (Linux); 0: no limit."""
    import resource

    with open("/proc/self/statm", encoding="ascii") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    return lambda memory: limit(resource.RLIMIT_AS, held + (memory or sys.maxsize - held))


def _set_limits() -> None:
    import resource

    for name, most in limits().items():
        kind = getattr(resource, f"RLIMIT_{name}")
        least = [most if old == resource.RLIM_INFINITY else min(most, old) for old in resource.getrlimit(kind)]
        resource.setrlimit(kind, (least[0], least[1]))


def _restrict(libc: ctypes.CDLL, abi: int, read: list[str], write: list[str]) -> None:
    handled = _FIRST_ACCESS | sum(access for since, access in _LATER_ACCESS.items() if abi >= since)
    words = [handled, *([_TCP] if abi >= 4 else []), *([_SCOPED] if abi >= 6 else [])]
    attributes = struct.pack(f"{len(words)}Q", *words)
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return
    for path in (*_python(), *_LIBRARIES, *_MACHINE, *read):
        _allow(libc, ruleset, path, _READ)
    for path in write:
        _allow(libc, ruleset, path, _WRITE & handled)
    _allow(libc, ruleset, "/dev/null", (_READ_FILE | _WRITE_FILE | _TRUNCATE) & handled)
    libc.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


_held: list[int] = []
"""Descriptors that stay open: a folder of /proc is another one when nobody holds it and the kernel forgets it."""


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    """Allow what is there; a path that is not there, or cannot be reached, is left out."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not stat.S_ISDIR(os.fstat(place).st_mode):
        access &= _READ_FILE | _WRITE_FILE | _TRUNCATE
    libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", access, place), 0)
    if path.startswith("/proc/"):
        _held.append(place)
    else:
        os.close(place)


def _python() -> Iterator[str]:
    """Where the interpreter, its modules and its libraries lie, but no folder that holds the user's home as well."""
    place, homes = os.path.realpath(os.path.expanduser("~")), {_identity("/")}
    while place != "/":
        homes.add(_identity(place))
        place = os.path.dirname(place)
    yield os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for path in dict.fromkeys((sys.prefix, sys.base_prefix, sys.pycache_prefix or "", *sys.path, *libraries)):
        if os.path.isabs(path) and (found := _identity(path)) is not None and found not in homes:
            yield path


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
