"""Run a program in the root file system: no network, no other processes, only the files it is given, and no rights.

bubblewrap comes from the root file system itself, whose packages Debian's signature covers, and is started by that
system's own loader: the host needs no program. It needs user namespaces, or root. The program is never root, inside or
outside:

* A user's program stays that user to the kernel, in a user namespace of its own where the user is called ``NOBODY``,
  has no capability, and cannot make another namespace.
* Root's program becomes ``WORKER``, a user that owns nothing on the machine. Root without capabilities would not do:
  root owns /proc/sys and most other files, and is counted against no limit.

``docs/runtime.md`` says what is kept from what, and why.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from dmlprep.process import seccomp
from dmlprep.process.confinement import limits
from dmlprep.process.tools import run_tool

MOUNT_POINTS = ("driver", "exchange", "home", "libraries", "native", "out", "prefix", "shaders")
"""Folders of the root file system that exist to be mounted on."""

NOBODY = 65534
"""What a user is called inside."""

WORKER = 65533
"""User and group of programs that root starts. systemd gives the numbers from 65520 to 65533 to nobody
(systemd.io/UIDS-GIDS), and a container that has users at all has them up to 65535."""

SCRATCH = 256 << 20
"""Bytes that each of /tmp, /home and /dev/shm may hold: memory. A session puts 15 MB there."""


@dataclass(frozen=True)
class View:
    """What a program sees of a graphics device of the host, besides what every program sees: see ``drivers.py``.

    Attributes:
        nodes: device files by path inside, below /dev.
        files: files by path inside, in one folder of ``MOUNT_POINTS``, read-only.
        folders, links: folders and targets of links by path inside, below /sys, read-only.
        groups: groups that the program is in, where root starts it; a user's program has those of the user.
    """

    nodes: Mapping[str, Path] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    groups: Sequence[int] = ()


def command(
    root: Path,
    program: Sequence[str],
    *,
    read: Mapping[str, Path] | None = None,
    write: Mapping[str, Path] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: str = "/",
    scratch: int = SCRATCH,
    ours: bool = False,
    view: View | None = None,
) -> list[str]:
    """The command line that runs ``program`` inside; it serves as long as this process lives.

    Args:
        read: folders of the host by the path they have inside, read-only; mounted after ``write``. Where root runs
            this, they must be readable for all.
        write: the same, writable: see ``shared_folders.py``. Links that are made in them lead elsewhere outside than
            inside: whoever reads them must not follow any (``results.py``).
        folder: where the program starts.
        scratch: bytes that each of /tmp, /home and /dev/shm may hold.
        ours: the program is our own code: where root starts it, it may read and write root's files that it is given,
            and it may make every system call. The network is away all the same.
        view: a graphics device of the host, by default none.
    """
    worker = becomes_worker() and not ours
    # A descriptor is all that bubblewrap takes a filter from; the shell opens one that belongs to this line alone.
    filtered = [] if ours else ["/bin/sh", "-c", 'exec "$@" 9<"$0"', _filter()]
    line = [*filtered, *_bubblewrap(root), *([] if ours else ["--seccomp", "9"]), *_rights(worker)]
    line += ["--die-with-parent", "--new-session", "--clearenv"]
    line += _mounts(root, read or {}, write or {}, scratch, view or View())
    fixed = {"PATH": "/usr/bin:/usr/lib/wine", "HOME": "/home", "LANG": "C.UTF-8"}
    for key, value in {**fixed, **(environment or {})}.items():
        line += ["--setenv", key, value]
    return [*line, "--chdir", folder, "--", *_entrance(worker, view.groups if view else ()), *program]


def _bubblewrap(root: Path) -> list[str]:
    """The command that starts the root file system's bubblewrap on the host."""
    loader, libraries = root / "usr/lib64/ld-linux-x86-64.so.2", root / "usr/lib/x86_64-linux-gnu"
    return [str(loader), "--library-path", str(libraries), str(root / "usr/bin/bwrap")]


def _rights(worker: bool) -> list[str]:
    """Namespaces and capabilities that bubblewrap makes or keeps."""
    apart = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if worker:
        # What it takes to become another user; that takes them away.
        kept = [word for name in ("CAP_SETUID", "CAP_SETGID", "CAP_SYS_CHROOT") for word in ("--cap-add", name)]
        return [*apart, "--cap-drop", "ALL", *kept]
    who = ["--uid", str(NOBODY), "--gid", str(NOBODY)]
    return ["--unshare-user", *who, "--disable-userns", *apart, "--cap-drop", "ALL", "--as-pid-1"]


def _mounts(root: Path, read: Mapping[str, Path], write: Mapping[str, Path], scratch: int, view: View) -> list[str]:
    line = [
        *("--ro-bind", str(root), "/"),
        *("--proc", "/proc"),
        # Root, of whatever name, owns the kernel's settings; a file in /proc/sys is no matter of capabilities.
        *("--ro-bind", "/proc/sys", "/proc/sys"),
        *("--remount-ro", "/proc"),
        *("--dev", "/dev"),
    ]
    if view.folders or view.links:
        line += ["--tmpfs", "/sys"]  # the root file system has no place for what follows
    # The number of processors, which Wine and ONNX Runtime ask for; nothing else of /sys.
    line += ["--ro-bind-try", "/sys/devices/system/cpu", "/sys/devices/system/cpu"]
    line += _opened(view)
    for memory in ("/tmp", "/home", "/dev/shm"):
        line += ["--perms", "1777", "--size", str(scratch), "--tmpfs", memory]
    return [*line, "--remount-ro", "/dev", *_binds("--bind", write), *_binds("--ro-bind", read)]


def _binds(option: str, places: Mapping[str, Path]) -> list[str]:
    return [word for inside, outside in places.items() for word in (option, str(outside), inside)]


def _opened(view: View) -> list[str]:
    """Mounts for a graphics device; /dev is made read-only after them, which does not concern what devices take."""
    line = [*_binds("--dev-bind", view.nodes), *_binds("--ro-bind", view.folders)]
    for inside, target in view.links.items():
        line += ["--symlink", target, inside]
    if view.folders or view.links:
        line += ["--remount-ro", "/sys"]
    places = sorted({str(PurePosixPath(inside).parent) for inside in view.files})
    for place in places:
        line += ["--tmpfs", place]
    line += _binds("--ro-bind", view.files)
    for place in places:
        line += ["--remount-ro", place]
    return line


def _entrance(worker: bool, groups: Sequence[int]) -> list[str]:
    """Inside, before the program: give up what is left of root, then take on the limits."""
    if worker:
        user = f"--userspec=+{WORKER}:+{WORKER}"
        others = f"--groups={','.join(f'+{group}' for group in groups)}"
        change = ["/usr/sbin/chroot", user, others, "--skip-chdir", "/"]
        return [*change, "/usr/bin/sh", "-c", f'{_limits()} && exec "$@"', "sh"]
    # This shell is the first process inside, in place of bubblewrap's own: a program of the same user's may open
    # /proc/1/exe, and must not find a file there that is reached from outside, where it can be changed.
    return ["/usr/bin/sh", "-c", f'{_limits()} && "$@"; exit $?', "sh"]


_ULIMIT = {"CORE": ("c", 1), "NOFILE": ("n", 1), "MEMLOCK": ("l", 1024), "FSIZE": ("f", 512), "RTPRIO": ("r", 1)}
"""Letter of dash's ``ulimit`` for each limit, and its unit in bytes."""


def _limits() -> str:
    """Lines for dash that set limits, soft and hard; none is higher than that of this process."""
    import resource  # not on Windows, where the command line still reads this module to say so

    wanted = [(*_ULIMIT[name], getattr(resource, f"RLIMIT_{name}"), most) for name, most in limits().items()]
    if _processes_are_counted_here():
        # Threads count: Wine has about 60, the driver and ONNX Runtime one a processor each.
        wanted.append(("p", 1, resource.RLIMIT_NPROC, min(1024 + 8 * (os.cpu_count() or 1), 4096)))
    lines = []
    for letter, unit, kind, most in wanted:
        hard = resource.getrlimit(kind)[1]
        lines.append(f"ulimit -{letter} {(most if hard == resource.RLIM_INFINITY else min(most, hard)) // unit}")
    return " && ".join(lines)


def _processes_are_counted_here() -> bool:
    """Whether a limit of processes counts those of the sandbox alone: since Linux 5.14, or as ``WORKER``."""
    release = [int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdigit()]
    return becomes_worker() or release >= [5, 14]


@cache
def _filter_file(*, in_memory: bool) -> Any:
    if in_memory:
        file: Any = os.fdopen(os.memfd_create("dmlprep-seccomp"), "wb")
    else:
        file = tempfile.NamedTemporaryFile(prefix="dmlprep-seccomp-")  # noqa: SIM115 - it goes with this process
    file.write(seccomp.program())
    file.flush()
    return file


def _filter() -> str:
    """The path of the filter, which nobody else can write: a file in the memory of this process.

    Other processes cannot open it there where this one has changed its user since it was started.
    """
    own = f"/proc/{os.getpid()}"
    if os.stat(own).st_uid == os.geteuid():
        return f"{own}/fd/{_filter_file(in_memory=True).fileno()}"
    return str(_filter_file(in_memory=False).name)


@cache
def becomes_worker() -> bool:
    """Whether the programs run as ``WORKER``: this is root, of a system that has such a user.

    Where root is but the name of a user, as in ``unshare -r``, it is treated as that user.
    """
    if sys.platform == "win32" or os.geteuid() != 0:
        return False
    with contextlib.suppress(OSError):
        for row in Path("/proc/self/uid_map").read_text().splitlines():
            first, _outside, count = (int(field) for field in row.split())
            if first <= WORKER < first + count:
                return True
    return False


def why_not(root: Path) -> str:
    """Why the sandbox does not work here, empty when it does."""
    try:
        result = run_tool(command(root, ["/usr/bin/true"]), limit=30.0)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the sandbox does not start: {error}"
    if result.returncode == 0:
        return ""
    said = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.returncode}"]
    return (
        f"the sandbox does not start: {said[0]}. It needs user namespaces: "
        "sysctl kernel.unprivileged_userns_clone=1 (older Debian), kernel.apparmor_restrict_unprivileged_userns=0 "
        "(Ubuntu 24.04 and later), user.max_user_namespaces above 0, and in a container the right to create them"
    )
