"""Start processes that end with this one, whatever ends it, and end them with all that they started.

On Linux the kernel kills a process when its parent dies (``process/die_with_parent.py``), and each leads a process
group, which is killed as a whole. On Windows each is in a job object, which ends when its last handle closes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from dmlprep.core.errors import UsageError
from dmlprep.core.files.run_folder import at_end
from dmlprep.portable.limits import VARIABLE, MemoryLimit, memory_limit
from dmlprep.portable.memory import Family
from dmlprep.portable.process import CREATION_FLAGS, Job, environment
from dmlprep.process import die_with_parent
from dmlprep.process.ending import Ending

_BARE = ["-I", "-S"]
"""Flags of Python: it imports no packages and no modules of the user."""

_GRACE, _MOMENT = 10.0, 2.0
"""Seconds to wait for a killed process, and for a process whose pipes have closed."""


class Started:
    """A process with its job. Only its parent ends it, no fork of the parent."""

    def __init__(self, process: subprocess.Popen[bytes], job: Job) -> None:
        self.process = process
        self.job = job
        self.parent = os.getpid()
        self._family = Family(process.pid)
        self._killed = False
        self._forget = at_end(self.kill)

    @property
    def alive(self) -> bool:
        """False from the moment at which it is killed: the system may take a while."""
        return not self._killed and self.process.poll() is None

    def kill(self) -> None:
        """End the process and all that it started. Waits for nothing."""
        if self.parent != os.getpid():
            return
        self._killed = True
        self.job.end()
        with contextlib.suppress(OSError):
            if sys.platform == "win32":
                self.process.kill()  # where it could not be put into the job
            else:
                # The group can outlive its leader (Wine leaves servers behind), so it is killed in any case.
                os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, wait for that, and close its pipes."""
        if self.parent != os.getpid():
            return
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_GRACE)
        self._forget()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError, ValueError):
                if pipe is not None:
                    pipe.close()

    def ending(self) -> Ending:
        """How it ended; its pipes may close a moment before."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_MOMENT)
        return Ending.of(self.process.poll())

    def private_bytes(self) -> int:
        """Bytes of private memory of it and all below; 0 where the system does not tell."""
        return self.job.private_bytes() or self._family.private_bytes()

    def cpu_seconds(self) -> float:
        """Seconds of processor time that it and all below have used; 0 where the system does not tell."""
        return self.job.cpu_seconds() or self._family.cpu_seconds()


def _leash() -> list[str]:
    return [die_with_parent.__file__, str(os.getpid())] if sys.platform.startswith("linux") else []


def module_command(module: str, arguments: Sequence[str]) -> list[str]:
    """The command line of a module of ours, which dies with this process and imports none from the working folder."""
    return [sys.executable, "-P", *_leash(), "-m", module, *arguments]


def file_command(path: str, arguments: Sequence[str], confined: Sequence[Path] = (), bare: bool = False) -> list[str]:
    """The same for a file of Python, which need not import what its package imports; ``bare``: it imports no packages.

    ``confined``: the only folder that it may write to, then what of the user's it may read; where there are any, and
    the system can (``process/confinement.py``).
    """
    python = [sys.executable, *(_BARE if bare else ["-P"])]
    if not (leash := _leash()):
        return [*python, path, *arguments]
    limits = ["-c", *map(str, confined)] if confined else []
    return [*python, *leash, *limits, "-f", path, *arguments]


def leashed(command: Sequence[str]) -> list[str]:
    """The command line of another's program, so that it dies with this process. Costs 20 ms.

    Raises:
        FileNotFoundError: there is no such program.
    """
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    # Without an interpreter that this user may start (one that is embedded, or root's), the program is on its own.
    if not (leash := _leash()) or not os.access(sys.executable, os.X_OK):
        return [*command]
    return [sys.executable, *_BARE, *leash, *command]


def allowed_memory() -> MemoryLimit:
    """The memory that a process may hold where nobody asks for another limit.

    Raises:
        UsageError: the user's limit is none.
    """
    try:
        return memory_limit()
    except ValueError as error:
        raise UsageError(str(error), where=VARIABLE, fix="or remove the variable") from None


def start(
    command: Sequence[str],
    streams: tuple[int, int, int],
    *,
    temporary: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> Started:
    """Start a process in a group of its own, with standard input, output and error as ``subprocess`` takes them.

    Its temporary files go to ``temporary``, by default where ours do; ``variables`` are added to our environment.

    Raises:
        OSError: it cannot be started.
    """
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary)) if temporary else {}

    def begin() -> Started:
        job = Job()
        process = subprocess.Popen(
            command,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            start_new_session=True,
            creationflags=CREATION_FLAGS,
            env={**environment(), **places, **(variables or {})},
        )
        job.add(process)
        # Here and not by the caller, who may be interrupted while he waits.
        return Started(process, job)

    # Linux kills a process with PR_SET_PDEATHSIG when the *thread* that started it ends, which callers may end early.
    return _spawner(os.getpid()).submit(begin).result()


@cache
def _spawner(_pid: int) -> ThreadPoolExecutor:
    """The thread that starts all children of this process. A forked process has none of its parent's threads."""
    return ThreadPoolExecutor(1, thread_name_prefix="dmlprep-spawner")
