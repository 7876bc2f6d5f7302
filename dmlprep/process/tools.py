"""Run a third-party program to its end, with limits of time, memory and output."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from dmlprep.core.files.run_folder import temporary_folder
from dmlprep.process.starting import allowed_memory, leashed, start
from dmlprep.process.watching import Watch

_SLICE = 0.05
"""Seconds between two checks of the program's resource use."""

_MOST_SAID = 64 << 20
"""Limit for the size of standard output, and for the size of standard error, in bytes."""


def run_tool(
    command: Sequence[str], *, limit: float, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, at most ``limit`` seconds, with empty standard input. It ends with this process.

    The result is that of ``subprocess.run`` for any exit code, with the whole output; bytes that are not UTF-8 are
    replaced. ``variables`` are added to the environment.

    Raises:
        OSError: it cannot be started, wrote too much or used too much memory.
        subprocess.TimeoutExpired: it took longer.
        UsageError: the user's memory limit is not valid.
    """
    line = leashed(command)
    with temporary_folder("tool") as name:
        folder = Path(name)
        out, err = folder / "stdout", folder / "stderr"
        with out.open("wb") as to_out, err.open("wb") as to_err:
            pipes = (subprocess.DEVNULL, to_out.fileno(), to_err.fileno())
            started = start(line, pipes, temporary=folder, variables=variables)
        try:
            watch = Watch(started, seconds=limit, memory=allowed_memory(), files=(out, err), written=_MOST_SAID)
            ending = watch.wait(_SLICE)
        finally:
            started.end()
        if ending.kind in ("timeout", "hang"):
            raise subprocess.TimeoutExpired([*command], limit)
        if ending.kind in ("memory", "output"):
            raise OSError(f"{command[0]} {ending.words}")
        texts = [path.read_bytes().decode("utf-8", "replace") for path in (out, err)]
    return subprocess.CompletedProcess([*command], started.process.returncode, *texts)
