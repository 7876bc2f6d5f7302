"""Run a program in the root file system, with no network, no other processes, only named files, and no rights.

bubblewrap is in the root file system itself, whose packages Debian signs. It starts with that system's own loader, so
the host needs no program. It needs user namespaces, or root. The program is never root, inside or outside:

* If a user starts the program, the kernel runs it as that user, in a new user namespace. There the user is called
  ``NOBODY``, has no capability, and cannot make another namespace.
* If root starts the program, it runs as ``WORKER``, a user that owns no file on the machine. Root without capabilities
  would be too strong: root owns /proc/sys and most other files, and has no limits on processes.

``docs/runtime.md`` lists what the sandbox blocks, and why.
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
"""Folders of the root file system that serve as mount points."""

NOBODY = 65534
"""The id of a user inside the sandbox."""

WORKER = 65533
"""The id of user and group for programs that root starts. Ids from 65520 to 65533 are unused in systemd
(systemd.io/UIDS-GIDS). A container with its own user ids has them up to 65535."""

SCRATCH = 256 << 20
"""Default limit for the files in each of /tmp, /home and /dev/shm, which are memory, in bytes. A session puts 15 MB
there."""


@dataclass(frozen=True)
class View:
    """The parts of a host graphics device that a program in the sandbox sees, in addition to what every program sees.

    ``drivers.py`` makes them.

    Attributes:
        nodes: device files by path inside, below /dev.
        files: files by path inside, in one folder of ``MOUNT_POINTS``, read-only.
        folders, links: folders and link targets by path inside, below /sys, read-only.
        groups: groups of the program if root starts it; a user's program has the user's groups.
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
    """Return the command line that runs ``program`` in the sandbox. It is valid while this process lives.

    Args:
        root: the folder of the root file system.
        read: host folders by their path inside, read-only; mounted after ``write``. If root runs this, all users must
            be able to read them.
        write: the same, writable: see ``shared_folders.py``. A link that the program makes there has another target
            outside, so readers must not follow links (``results.py``).
        environment: further environment variables.
        folder: the program's working directory.
        scratch: limit for the files in each of /tmp, /home and /dev/shm, in bytes.
        ours: the program is dmlprep's own code. Started by root, it may read and write root's files that it is given.
            It may make every system call. The network is blocked nevertheless.
        view: a host graphics device; by default none.
    """
    worker = becomes_worker() and not ours
    # bubblewrap reads a filter only from a descriptor. The shell opens one for this command line.
    filtered = [] if ours else ["/bin/sh", "-c", 'exec "$@" 9<"$0"', _filter()]
    line = [*filtered, *_bubblewrap(root), *([] if ours else ["--seccomp", "9"]), *_rights(worker)]
    line += ["--die-with-parent", "--new-session", "--clearenv"]
    line += _mounts(root, read or {}, write or {}, scratch, view or View())
    fixed = {"PATH": "/usr/bin:/usr/lib/wine", "HOME": "/home", "LANG": "C.UTF-8"}
    for key, value in {**fixed, **(environment or {})}.items():
        line += ["--setenv", key, value]
    return [*line, "--chdir", folder, "--", *_entrance(worker, view.groups if view else ()), *program]


def _bubblewrap(root: Path) -> list[str]:
    """Return the command that starts the root file system's bubblewrap on the host."""
    loader, libraries = root / "usr/lib64/ld-linux-x86-64.so.2", root / "usr/lib/x86_64-linux-gnu"
    return [str(loader), "--library-path", str(libraries), str(root / "usr/bin/bwrap")]


def _rights(worker: bool) -> list[str]:
    """Return bubblewrap's options for the namespaces that it makes, and for the capabilities that it keeps."""
    apart = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if worker:
        # These are needed to become another user, and are lost afterwards.
        capabilities = [word for name in ("CAP_SETUID", "CAP_SETGID", "CAP_SYS_CHROOT") for word in ("--cap-add", name)]
        return [*apart, "--cap-drop", "ALL", *capabilities]
    who = ["--uid", str(NOBODY), "--gid", str(NOBODY)]
    return ["--unshare-user", *who, "--disable-userns", *apart, "--cap-drop", "ALL", "--as-pid-1"]


def _mounts(root: Path, read: Mapping[str, Path], write: Mapping[str, Path], scratch: int, view: View) -> list[str]:
    line = [
        *("--ro-bind", str(root), "/"),
        *("--proc", "/proc"),
        # Any root user owns the kernel's settings: access to a file in /proc/sys does not depend on capabilities.
        *("--ro-bind", "/proc/sys", "/proc/sys"),
        *("--remount-ro", "/proc"),
        *("--dev", "/dev"),
    ]
    if view.folders or view.links:
        line += ["--tmpfs", "/sys"]  # the root file system has no folders for the mounts that follow
    # The number of processors, which Wine and ONNX Runtime read; nothing else of /sys.
    line += ["--ro-bind-try", "/sys/devices/system/cpu", "/sys/devices/system/cpu"]
    line += _opened(view)
    for memory in ("/tmp", "/home", "/dev/shm"):
        line += ["--perms", "1777", "--size", str(scratch), "--tmpfs", memory]
    return [*line, "--remount-ro", "/dev", *_binds("--bind", write), *_binds("--ro-bind", read)]


def _binds(option: str, places: Mapping[str, Path]) -> list[str]:
    return [word for inside, outside in places.items() for word in (option, str(outside), inside)]


def _opened(view: View) -> list[str]:
    """Return bubblewrap's options for the mounts of a graphics device.

    /dev becomes read-only after them, but devices still accept writes.
    """
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
    """Return the start of the command inside the sandbox: drop the remaining root rights, then set the limits."""
    if worker:
        user = f"--userspec=+{WORKER}:+{WORKER}"
        others = f"--groups={','.join(f'+{group}' for group in groups)}"
        change = ["/usr/sbin/chroot", user, others, "--skip-chdir", "/"]
        return [*change, "/usr/bin/sh", "-c", f'{_limits()} && exec "$@"', "sh"]
    # This shell replaces bubblewrap as the first process inside. A program of the same user may open /proc/1/exe. That
    # must not be a file outside, where it could be changed.
    return ["/usr/bin/sh", "-c", f'{_limits()} && "$@"; exit $?', "sh"]


_ULIMIT = {"CORE": ("c", 1), "NOFILE": ("n", 1), "MEMLOCK": ("l", 1024), "FSIZE": ("f", 512), "RTPRIO": ("r", 1)}
"""The letter of dash's ``ulimit`` for each limit, and its unit in bytes."""


def _limits() -> str:
    """Return a command for dash that sets soft and hard limits. No limit is higher than that of this process."""
    import resource  # Windows has no resource, but the command line imports this module there too

    wanted = [(*_ULIMIT[name], getattr(resource, f"RLIMIT_{name}"), most) for name, most in limits().items()]
    if _processes_are_counted_here():
        # Threads count as processes: Wine has about 60, the driver and ONNX Runtime one for each processor.
        wanted.append(("p", 1, resource.RLIMIT_NPROC, min(1024 + 8 * (os.cpu_count() or 1), 4096)))
    lines = []
    for letter, unit, kind, most in wanted:
        hard = resource.getrlimit(kind)[1]
        lines.append(f"ulimit -{letter} {(most if hard == resource.RLIM_INFINITY else min(most, hard)) // unit}")
    return " && ".join(lines)


def _processes_are_counted_here() -> bool:
    """Return whether a process limit counts only the processes of the sandbox: since Linux 5.14, or as ``WORKER``."""
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
    """Return the path of the seccomp filter, a file in the memory of this process, which no other process can write.

    If this process changed its user since its start, other processes cannot open that file. Then it is a temporary
    file.
    """
    own = f"/proc/{os.getpid()}"
    if os.stat(own).st_uid == os.geteuid():
        return f"{own}/fd/{_filter_file(in_memory=True).fileno()}"
    return str(_filter_file(in_memory=False).name)


@cache
def becomes_worker() -> bool:
    """Return whether sandboxed programs run as ``WORKER``: if this process is root, on a system that has such a user.

    A user that is only called root, as in ``unshare -r``, counts as an ordinary user.
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
    """Start the sandbox once; return why it does not work here, or an empty text if it works."""
    try:
        result = run_tool(command(root, ["/usr/bin/true"]), limit=30.0)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the sandbox does not start: {error}"
    if result.returncode == 0:
        return ""
    reasons = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.returncode}"]
    return (
        f"the sandbox does not start: {reasons[0]}. It needs user namespaces: "
        "sysctl kernel.unprivileged_userns_clone=1 (older Debian), kernel.apparmor_restrict_unprivileged_userns=0 "
        "(Ubuntu 24.04 and later), user.max_user_namespaces above 0, and in a container the right to create them"
    )
