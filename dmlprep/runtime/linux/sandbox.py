"""Run a program in the root file system: no network, no other processes, and only the files it is given.

bubblewrap comes from the root file system itself and is started by that system's own loader, so nothing needs to be
installed on the host. It needs user namespaces, or root.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["MOUNT_POINTS", "command", "why_not"]

MOUNT_POINTS = ("exchange", "home", "libraries", "native", "out", "prefix", "shaders")
"""Folders of the root file system that exist to be mounted on."""

_LIBRARIES = "usr/lib/x86_64-linux-gnu"


def _bubblewrap(root: Path) -> list[str]:
    loader = root / "usr/lib64/ld-linux-x86-64.so.2"
    return [str(loader), "--library-path", str(root / _LIBRARIES), str(root / "usr/bin/bwrap")]


def command(
    root: Path,
    program: Sequence[str],
    *,
    read: Mapping[str, Path] | None = None,
    write: Mapping[str, Path] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """The command line that runs ``program`` inside.

    Args:
        read: folders of the host by the path they have inside, read-only; mounted after ``write``.
        write: the same, writable.
    """
    line = [
        *_bubblewrap(root),
        "--unshare-all",
        "--die-with-parent",
        "--clearenv",
        *("--ro-bind", str(root), "/"),
        *("--proc", "/proc"),
        *("--dev", "/dev"),
        *("--tmpfs", "/tmp"),
        *("--tmpfs", "/home"),
        # The number of processors, which Wine and ONNX Runtime ask for.
        *("--ro-bind-try", "/sys/devices/system/cpu", "/sys/devices/system/cpu"),
    ]
    for inside, outside in (write or {}).items():
        line += ["--bind", str(outside), inside]
    for inside, outside in (read or {}).items():
        line += ["--ro-bind", str(outside), inside]
    fixed = {"PATH": "/usr/bin:/usr/lib/wine", "HOME": "/home", "LANG": "C.UTF-8"}
    for key, value in {**fixed, **(environment or {})}.items():
        line += ["--setenv", key, value]
    return [*line, "--chdir", "/", "--", *program]


def why_not(root: Path) -> str:
    """Why the sandbox does not work here, empty when it does."""
    try:
        result = subprocess.run(
            command(root, ["/usr/bin/true"]), capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the sandbox cannot be started: {error}"
    if result.returncode == 0:
        return ""
    said = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.returncode}"]
    return (
        f"the sandbox cannot be started: {said[0]}; it needs user namespaces: "
        "sysctl kernel.unprivileged_userns_clone=1 (older Debian), kernel.apparmor_restrict_unprivileged_userns=0 "
        "(Ubuntu 24.04 and later), user.max_user_namespaces above 0, and in a container the right to make them"
    )
