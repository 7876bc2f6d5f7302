"""Start a program that dies when this process's parent dies (Linux).

| command | effect |
|---|---|
| python -P die_with_parent.py PARENT -m MODULE ... | run a module in this process |
| python -P die_with_parent.py PARENT -f FILE ... | run a Python file in this process |
| python -P die_with_parent.py PARENT -c FOLDER [PATH ...] -f FILE ... | the same, confined to FOLDER and each PATH |
| python -I -S die_with_parent.py PARENT PROGRAM ... | replace this process by another program |

PARENT is the process id of the parent. The kernel kills the process (PR_SET_PDEATHSIG, which remains when another
program replaces it). This is set before the program imports modules, which takes a worker seconds on a slow disk. With
``-c``, the file can write only to FOLDER, and read each PATH. A process with ``-f`` is a worker: if memory is short,
the kernel ends it first.
"""

from __future__ import annotations

import ctypes
import os
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType

_PR_SET_PDEATHSIG, _SIGKILL = 1, 9  # signal imports enum, and contextlib functools: no worker's start needs them


def main(arguments: list[str]) -> None:
    """Run a program in this process that dies with its parent; exit with 1 if the parent has already ended.

    ``arguments``: the process id of the parent, then the program, as in the table of this module.
    """
    parent, *program = arguments
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(1)  # the parent ended before the call above
    if program[0] in ("-c", "-f"):
        _prefer_as_victim()  # before the sandbox, which forbids it
    if program[0] == "-c":
        end = program.index("-f")
        _confine(program[1], program[2:end])
        program = program[end:]
    if program[0] == "-f":
        _run_file(program[1:])
    elif program[0] == "-m":
        import runpy

        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        try:
            os.execvp(program[0], program)
        except OSError as error:
            sys.exit(f"{program[0]}: {error.strerror}")


def _prefer_as_victim() -> None:
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:
        pass


def _run_file(arguments: list[str]) -> None:
    """Run a Python file as the main module, from cached bytecode if there is any, which runpy does not use."""
    sys.argv = arguments
    module = ModuleType("__main__")
    module.__file__ = arguments[0]
    sys.modules["__main__"] = module
    SourceFileLoader("__main__", arguments[0]).exec_module(module)


def _confine(folder: str, paths: list[str]) -> None:
    # The package around it would import modules that such a file never needs.
    package = ModuleType("dmlprep")
    package.__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    sys.modules["dmlprep"] = package
    from dmlprep.process.confinement import confine

    confine(read=paths, write=[folder])


if __name__ == "__main__":
    main(sys.argv[1:])
