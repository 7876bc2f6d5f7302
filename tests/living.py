"""Whether processes live, on each system; one that nobody has waited for yet does not live."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import sys
import time
from pathlib import Path

from dmlprep.process.confinement import takes_filters

__all__ = ["alive", "gone_within", "interrupted", "is_filtered"]

_SYNCHRONIZE, _WAIT_TIMEOUT = 0x00100000, 0x102


def alive(pid: int) -> bool:
    """Whether the process, or on Linux one of the group that it leads, lives."""
    if sys.platform == "win32":
        kernel = ctypes.WinDLL("kernel32")
        kernel.OpenProcess.restype = ctypes.c_void_p
        kernel.WaitForSingleObject.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
        kernel.CloseHandle.argtypes = [ctypes.c_void_p]
        handle = kernel.OpenProcess(_SYNCHRONIZE, 0, pid)
        if not handle:
            return False
        try:
            return bool(kernel.WaitForSingleObject(handle, 0) == _WAIT_TIMEOUT)
        finally:
            kernel.CloseHandle(handle)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _parent, group = stat.read_text().rpartition(")")[2].split()[:3]
            if pid in (int(group), int(stat.parent.name)) and state != "Z":
                return True
    return False


def is_filtered(pid: int) -> bool:
    """Whether a filter of system calls holds the process, where this kernel takes one."""
    if not takes_filters():
        return True
    rows = dict(row.split(":", 1) for row in Path(f"/proc/{pid}/status").read_text().splitlines())
    return rows["Seccomp"].strip() == "2" and rows["NoNewPrivs"].strip() == "1"


def interrupted(process: subprocess.Popen[str]) -> str:
    """Press Ctrl-C, and give what the program said until it had ended, stdout and stderr, with exit code 130."""
    process.send_signal(signal.SIGINT)
    try:
        said = "".join(process.communicate(timeout=60))
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 130, said
    return said


def gone_within(pid: int, seconds: float) -> bool:
    """Whether it ends in that time."""
    end = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
