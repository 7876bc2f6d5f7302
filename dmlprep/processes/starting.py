"""Start processes that end with this one, whatever ends it, and end them with all that they started.

On Linux the kernel kills a process when its parent dies (``processes/leash.py``), and each leads a process group, which
is killed as a whole. On Windows each is in a job object, which ends when its last handle closes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dmlprep.errors import UsageError
from dmlprep.files.run_folder import at_end
from dmlprep.processes import leash
from dmlprep.processes.limits import VARIABLE, MemoryLimit, memory_limit
from dmlprep.processes.memory import Family
from dmlprep.processes.process import CREATION_FLAGS, Job, environment
from dmlprep.processes.spawning import spawn

__all__ = ["Started", "allowed_memory", "file_command", "leashed", "module_command", "start"]


@dataclass(frozen=True)
class Started:
    """A process with its job; ``forget`` is called once it has ended."""

    process: subprocess.Popen[bytes]
    job: Job
    family: Family
    forget: Callable[[], None]
    parent: int = field(default_factory=os.getpid)

    def kill(self) -> None:
        """End the process and all that it started, unless this process was forked off. Waits for nothing."""
        if self.parent == os.getpid():
            _kill(self.process, self.job)

    def private_bytes(self) -> int:
        """Bytes of private memory of it and all below; 0 where the system does not tell."""
        return self.job.private_bytes() or self.family.private_bytes()

    def cpu_seconds(self) -> float:
        """Seconds of processor time that it and all below have used; 0 where the system does not tell."""
        return self.job.cpu_seconds() or self.family.cpu_seconds()


def module_command(module: str, arguments: Sequence[str]) -> list[str]:
    """The command line of a module of ours, which dies with this process. -P: modules of the working directory are not
    imported."""
    if not sys.platform.startswith("linux"):
        return [sys.executable, "-P", "-m", module, *arguments]
    return [sys.executable, "-P", leash.__file__, str(os.getpid()), "-m", module, *arguments]


def file_command(path: str, arguments: Sequence[str], confined: Sequence[Path] = ()) -> list[str]:
    """The same for a file of Python, which need not import what its package imports; nor are modules of its folder
    imported by their names.

    Args:
        confined: the only folder that it may write to, then what of the user's it may read; where there are any, and
            the system can (``processes/confinement.py``).
    """
    if not sys.platform.startswith("linux"):
        return [sys.executable, "-P", path, *arguments]
    kept = ["-c", *map(str, confined)] if confined else []
    return [sys.executable, "-P", leash.__file__, str(os.getpid()), *kept, "-f", path, *arguments]


def leashed(command: Sequence[str]) -> list[str]:
    """The command line of another's program, so that it dies with this process. Costs 20 ms.

    Raises:
        FileNotFoundError: there is no such program.
    """
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    # Without an interpreter that this user may start (one that is embedded, or root's), the program is on its own.
    if not sys.platform.startswith("linux") or not os.access(sys.executable, os.X_OK):
        return [*command]
    return [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), *command]


def allowed_memory() -> MemoryLimit:
    """The memory that a process may hold where nobody asks for another limit.

    Raises:
        UsageError: the user's limit is none.
    """
    try:
        return memory_limit()
    except ValueError as error:
        raise UsageError(str(error), where=VARIABLE, fix="or remove the variable: the limit is a share then") from None


def start(
    command: Sequence[str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    temporary: Path,
    variables: Mapping[str, str] | None = None,
) -> Started:
    """Start a process in a group of its own.

    Args:
        stdin, stdout, stderr: as ``subprocess`` takes them.
        temporary: where its temporary files go.
        variables: of its environment, besides ours.

    Raises:
        OSError: it cannot be started.
    """
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))

    def begin() -> Started:
        job = Job()
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            creationflags=CREATION_FLAGS,
            env={**environment(), **places, **(variables or {})},
        )
        job.add(process)
        # Here and not by the caller, who may be interrupted while he waits.
        return Started(process, job, Family(process.pid), at_end(lambda: _kill(process, job)))

    return spawn(begin)


def _kill(process: subprocess.Popen[bytes], job: Job) -> None:
    job.end()
    if sys.platform == "win32":
        process.kill()  # where it could not be put into the job
    else:
        # The group can outlive its leader (Wine leaves servers behind), so it is killed in any case.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
