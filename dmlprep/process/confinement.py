"""Drop the rights that a worker does not need, before it opens a third-party model (Linux, without root).

| blocked | by |
|---|---|
| other files than those given: reading, writing, creating, removing and listing | Landlock (Linux 5.13) |
| sockets, programs, processes, signals to others, modes and owners of files | seccomp (``seccomp.py``; x86-64) |
| TCP connections (ABI 4), signals and abstract sockets (ABI 6), a second time | Landlock |
| core files, large files, many descriptors | limits |

The process itself calls ``confine`` while it has one thread. Landlock applies to the calling thread and to the threads
that it starts later. Features that the kernel lacks are skipped (``lacking``). A worker imports this module before it
is ready, so the module imports little. Sources: landlock(7), linux/landlock.h, seccomp(2).
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
"""Limit for the number of open file descriptors of one process."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _SECCOMP = 444, 445, 446, 317
_RULESET_VERSION, _PATH_BENEATH = 1, 1
_NO_NEW_PRIVS = 38

_FILTER_MODE, _ASK_ACTION = 1, 2
_FILTER_FLAGS = 1 | 4
"""SECCOMP_FILTER_FLAG_TSYNC, for all threads; SPEC_ALLOW, because kernels before 5.16 otherwise slow the process
(SSBD)."""

_X86_64 = ("x86_64", "AMD64")

# linux/landlock.h: LANDLOCK_ACCESS_FS_*
_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_FILE, _MAKE_REG, _TRUNCATE = 1 << 1, 1 << 2, 1 << 3, 1 << 5, 1 << 8, 1 << 14
_FIRST_ACCESS = (1 << 13) - 1  # the rights of ABI 1
_LATER_ACCESS = {2: 1 << 13, 3: _TRUNCATE, 5: 1 << 15}
"""Rights by the ABI that introduced them: REFER, TRUNCATE, IOCTL_DEV."""
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
"""Files about processors and memory, which ONNX Runtime and the C library read."""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def landlock_abi() -> int:
    """Return the Landlock version of this kernel; 0 for none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _RULESET_VERSION)))


def takes_filters() -> bool:
    """Return whether the filter of ``seccomp.py`` works here.

    It needs an x86-64 processor, and a kernel that accepts filters.
    """
    if not sys.platform.startswith("linux") or os.uname().machine not in _X86_64:
        return False
    kill = ctypes.c_uint32(0)
    return int(_libc().syscall(_SECCOMP, _ASK_ACTION, 0, ctypes.byref(kill))) == 0


def lacking() -> list[str]:
    """Return what a worker can still do on this system, one sentence each; empty if Landlock and the filter work.

    Older versions of Landlock, which block less, count as working.
    """
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
    """Return the limits that ``confine`` sets, by the name of the constant ``RLIMIT_...`` without this prefix."""
    # A file that a process creates here, or a log, is never larger than the memory.
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"CORE": 0, "NOFILE": FILES, "MEMLOCK": 64 << 20, "FSIZE": memory, "RTPRIO": 0}


def confine(read: Iterable[str | os.PathLike[str]] = (), write: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Restrict this process to its memory, its open files, Python and system libraries, and these paths.

    It may read the files and folders in ``read``. It may create, write and remove plain files below the folders in
    ``write``. On systems other than Linux this does nothing. Features that the kernel lacks are skipped without an
    error.
    """
    if not sys.platform.startswith("linux"):
        return
    _set_limits()
    libc = _libc()
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        return  # a kernel before 3.5 has none of the following features
    if abi := landlock_abi():
        _restrict(libc, abi, [os.fspath(path) for path in read], [os.fspath(path) for path in write])
    if os.uname().machine in _X86_64:
        raw = seccomp.program(os.getpid())
        code = ctypes.create_string_buffer(raw, len(raw))
        program = struct.pack("HP", len(raw) // 8, ctypes.addressof(code))
        # If this fails, the kernel has no filters (``takes_filters``), or a thread has its own filter.
        libc.syscall(_SECCOMP, _FILTER_MODE, _FILTER_FLAGS, ctypes.c_char_p(program))


def limit(kind: int, most: int) -> None:
    """Set the soft limit of this process for ``kind`` (``resource.RLIMIT_...``), at most its hard limit."""
    import resource

    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def bounding() -> Callable[[int], None]:
    """Return a function that limits the memory of this process to a number of bytes above its present use (Linux).

    The present use is that at the call of ``bounding``. With 0, the function removes the limit.
    """
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
"""Descriptors that stay open. A folder of /proc gets another identity if it is closed and the kernel forgets it."""


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    """Add a path to a Landlock ruleset with these rights; skip a path that does not exist or cannot be reached."""
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
    """Yield the paths of the interpreter, its modules and its libraries, except those that contain the home folder."""
    place, homes = os.path.realpath(os.path.expanduser("~")), {_identity("/")}
    while place != "/":
        homes.add(_identity(place))
        place = os.path.dirname(place)
    yield os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    for path in dict.fromkeys((sys.prefix, sys.base_prefix, sys.pycache_prefix or "", *sys.path, *libraries)):
        if os.path.isabs(path) and (identity := _identity(path)) is not None and identity not in homes:
            yield path


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
