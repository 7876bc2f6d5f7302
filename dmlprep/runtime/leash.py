"""Start a program that dies when this process's parent dies (Linux).

    python -P leash.py PARENT -m MODULE ...          a module, in this process
    python -P leash.py PARENT -f FILE ...            a file of Python, in this process
    python -P leash.py PARENT -c FOLDER [PATH ...] -f FILE ...
                                                     the same; it writes to the folder only, and reads these paths
    python -I -S leash.py PARENT PROGRAM ...         a program of others, in the place of this one

The kernel kills it (PR_SET_PDEATHSIG, which a process keeps when another program takes its place). Asked for before
anything is imported, which for a worker takes seconds on a slow disk.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Become the program, or end where the parent is no longer there."""
    parent, *program = arguments
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(1)  # it ended before the call above
    if program[0] == "-c":
        end = program.index("-f")
        _confine(program[1], program[2:end])
        program = program[end:]
    if program[0] in ("-m", "-f"):
        import runpy

        sys.argv = program[1:]
        if program[0] == "-m":
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program[1], run_name="__main__")
        return
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"{program[0]}: {error.strerror}")


def _confine(folder: str, paths: list[str]) -> None:
    # The package around it imports what such a file never asks for.
    from types import ModuleType

    package = ModuleType("dmlprep")
    package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    sys.modules["dmlprep"] = package
    from dmlprep.processes.confinement import confine

    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # the first to go where memory is short
    confine(read=paths, write=[folder])


if __name__ == "__main__":
    main(sys.argv[1:])
