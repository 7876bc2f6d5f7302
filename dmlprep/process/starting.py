"""Start processes that end with this one, however it ends, and end them with all their descendants.

On Linux the kernel kills a process when its parent dies (``process/die_with_parent.py``). Each process leads a process
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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from dmlprep.core.errors import UsageError
from dmlprep.core.files.run_folder import at_end
from dmlprep.portable.limits import VARIABLE, MemoryLimit, memory_limit
from dmlprep.portable.memory import Family
from dmlprep.portable.process import CREATION_FLAGS, Job, environment
from dmlprep.process import die_with_parent
from dmlprep.process.ending import Ending

_BARE = ["-I", "-S"]
"""Flags of Python: import no site packages and no modules of the user."""

_GRACE, _MOMENT = 10.0, 2.0
"""Seconds to wait for the end of a killed process, and of a process whose pipes have closed."""


class Started:
    """A started process, its job object (Windows) and its process group.

    In a fork of the parent, ``kill`` and ``end`` do nothing.
    """

    def __init__(self, process: subprocess.Popen[bytes], job: Job) -> None:
        self.process = process
        self.job = job
        self.parent = os.getpid()
        self._family = Family(process.pid)
        self._killed = False
        self._forget = at_end(self.kill)

    @property
    def alive(self) -> bool:
        """True while the process runs. False as soon as it is killed, although the system may take a while."""
        return not self._killed and self.process.poll() is None

    def kill(self) -> None:
        """Kill the process and its descendants (its job, or its process group), without waiting."""
        if self.parent != os.getpid():
            return
        self._killed = True
        self.job.end()
        with contextlib.suppress(OSError):
            if sys.platform == "win32":
                self.process.kill()  # if it could not be put into the job
            else:
                # The group can outlive its leader (Wine leaves servers behind), so it is killed in any case.
                os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the process, wait up to 10 s for its end, and close the pipes of its standard input and output."""
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
        """Return how the process ended, after a short wait: its pipes may close a moment before its end.

        If it still runs, the result is ``exit`` with an unknown code.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_MOMENT)
        return Ending.of(self.process.poll())

    def private_bytes(self) -> int:
        """Return the private memory of the process and its descendants in bytes; 0 if the system does not report it."""
        return self.job.private_bytes() or self._family.private_bytes()

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process and its descendants; 0 if the system does not report them."""
        return self.job.cpu_seconds() or self._family.cpu_seconds()


def _leash() -> list[str]:
    return [die_with_parent.__file__, str(os.getpid())] if sys.platform.startswith("linux") else []


def module_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs a dmlprep module with ``arguments``.

    The process dies with this one (Linux). The current folder is not among the places of imports.
    """
    return [sys.executable, "-P", *_leash(), "-m", module, *arguments]


def file_command(path: str, arguments: Sequence[str], confined: Sequence[Path] = (), bare: bool = False) -> list[str]:
    """Return the command line that runs a Python file without importing the package that contains it.

    Args:
        confined: the only folder that it may write, then the user files that it may read; empty: no limits. It applies
            if the system supports it (``process/confinement.py``).
        bare: import no site packages.
    """
    python = [sys.executable, *(_BARE if bare else ["-P"])]
    if not (leash := _leash()):
        return [*python, path, *arguments]
    limits = ["-c", *map(str, confined)] if confined else []
    return [*python, *leash, *limits, "-f", path, *arguments]


def leashed(command: Sequence[str]) -> list[str]:
    """Return a command line that makes a third-party program die with this process (Linux). It costs 20 ms.

    On other systems, the command is returned unchanged.

    Raises:
        FileNotFoundError: there is no such program.
    """
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    # If this user cannot run the interpreter (embedded, or only for root), the program runs without this.
    if not (leash := _leash()) or not os.access(sys.executable, os.X_OK):
        return [*command]
    return [sys.executable, *_BARE, *leash, *command]


def allowed_memory() -> MemoryLimit:
    """Return the default memory limit of a process, or the one that the user set.

    Raises:
        UsageError: the user's limit is not valid.
    """
    try:
        return memory_limit()
    except ValueError as error:
        raise UsageError(str(error), where=VARIABLE, fix="correct or remove the variable") from None


def start(
    command: Sequence[str],
    streams: tuple[int, int, int],
    *,
    temporary: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> Started:
    """Start a process in a new group. ``streams`` are its standard input, output and error, as for ``subprocess``.

    Its temporary files are in ``temporary``, or by default where this process has them. ``variables`` are added to the
    environment.

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
        # This is not left to the caller, who may be interrupted while waiting.
        return Started(process, job)

    # On Linux, PR_SET_PDEATHSIG kills a process when the *thread* that started it ends, and callers' threads may end
    # early.
    started: Future[Started] = Future()
    _spawner(os.getpid()).put((begin, started))
    return started.result()


@cache
def _spawner(_pid: int) -> SimpleQueue[tuple[Callable[[], Started], Future[Started]]]:
    """Return the queue of the thread that starts all children of this process.

    The process id is the key of the cache, because a forked process has none of its parent's threads. No executor of
    Python: it takes no more work as soon as the main thread ends, while other threads still run.
    """
    waiting: SimpleQueue[tuple[Callable[[], Started], Future[Started]]] = SimpleQueue()

    def work() -> None:
        while True:
            begin, started = waiting.get()
            try:
                started.set_result(begin())
            except BaseException as error:  # it belongs to the caller
                started.set_exception(error)
            del begin, started  # the process belongs to the caller, who closes its pipes

    Thread(target=work, name="dmlprep-spawner", daemon=True).start()
    return waiting
