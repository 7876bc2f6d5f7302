"""Run a program of another's to its end, with limits of time, memory and output."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dmlprep.files.run_folder import temporary_folder
from dmlprep.processes.starting import Started, allowed_memory, leashed, start

__all__ = ["run_tool"]

_SLICE = 0.05
"""Seconds of a wait, between two looks at what the program uses."""

_MOST_SAID = 64 << 20
"""Bytes that it may write to standard output, and to standard error."""

_GRACE = 10.0
"""Seconds within which a killed process is gone, but for a system that hangs."""


def run_tool(
    command: Sequence[str], *, limit: float, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; standard input is empty. It ends with this process, with all that it started.

    Args:
        limit: seconds.
        variables: of its environment, besides ours.

    Returns:
        as ``subprocess.run``, with all that it wrote; what is not UTF-8 is replaced.

    Raises:
        OSError: it cannot be started, wrote too much or used too much memory.
        subprocess.TimeoutExpired: it took longer.
    """
    line = leashed(command)
    with temporary_folder("tool") as name:
        folder = Path(name)
        out, err = folder / "stdout", folder / "stderr"
        with out.open("wb") as to_out, err.open("wb") as to_err:
            started = start(
                line,
                stdin=subprocess.DEVNULL,
                stdout=to_out.fileno(),
                stderr=to_err.fileno(),
                temporary=folder,
                variables=variables,
            )
        try:
            code = _wait(started, command, limit, (out, err))
        finally:
            started.kill()
            started.process.wait(_GRACE)
            started.forget()
        said = [path.read_bytes().decode("utf-8", "replace") for path in (out, err)]
    return subprocess.CompletedProcess([*command], code, *said)


def _wait(started: Started, command: Sequence[str], limit: float, files: Sequence[Path]) -> int:
    end, allowed = time.monotonic() + limit, allowed_memory()
    while True:
        try:
            return started.process.wait(_SLICE)
        except subprocess.TimeoutExpired:
            if time.monotonic() >= end:
                raise subprocess.TimeoutExpired([*command], limit) from None
        if any(path.stat().st_size > _MOST_SAID for path in files):
            raise OSError(f"{command[0]} wrote more than {_MOST_SAID >> 20} MiB and was ended")
        if allowed.nbytes and (held := started.private_bytes()) > allowed.nbytes:
            raise OSError(f"{command[0]} {allowed.exceeded(held)}")
