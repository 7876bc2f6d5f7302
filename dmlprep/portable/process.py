"""Start child processes on Windows without a console window or a crash dialog, and end them with this process.

On other systems most of this module does nothing: process groups and signals do its work there. Sources
(learn.microsoft.com): "Job Objects", JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JOBOBJECT_BASIC_UI_RESTRICTIONS,
JOBOBJECT_BASIC_PROCESS_ID_LIST, "Process Creation Flags", SetErrorMode, PROCESS_MEMORY_COUNTERS_EX.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

_CREATE_NEW_PROCESS_GROUP, _CREATE_NO_WINDOW = 0x00000200, 0x08000000
CREATION_FLAGS = (_CREATE_NEW_PROCESS_GROUP | _CREATE_NO_WINDOW) if sys.platform == "win32" else 0
"""The ``creationflags`` for subprocess. Ctrl-C reaches only this process, and no console window opens for the child."""

_TELEMETRY = "ORT_DISABLE_TELEMETRY"
"""Environment variable: ``1`` disables ONNX Runtime's telemetry, which also leaves files in the temporary folder
(since 1.30 also on Linux). Workers get ``1``, unless the user sets another value."""

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""Environment variable: the number of threads that OpenBLAS starts when numpy is imported (40 ms of CPU time). They
only help with products of large matrices. ONNX Runtime has its own threads; the only worker that multiplies in numpy is
the evaluator."""

_ERROR_MODE = 0x0001 | 0x0002 | 0x8000  # SEM_FAILCRITICALERRORS, SEM_NOGPFAULTERRORBOX, SEM_NOOPENFILEERRORBOX
_LIMIT_PROCESSES, _LIMIT_JOB_MEMORY, _LIMIT_DIE_ON_EXCEPTION, _LIMIT_KILL_ON_CLOSE = 0x0008, 0x0200, 0x0400, 0x2000
_EXTENDED_LIMITS, _UI_RESTRICTIONS, _PROCESS_IDS = 9, 4, 3  # JOBOBJECTINFOCLASS
_NO_UI = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80
"""JOB_OBJECT_UILIMIT_* flags of what a job may not use: the clipboard, system parameters, display settings,
desktops, and the shutdown of Windows. Handles and atoms stay allowed, because graphics drivers may use them."""
_QUERY_LIMITED, _VM_READ = 0x1000, 0x0010
_MOST_PROCESSES = 64
"""Limit for the number of processes in a job, and of those that are measured. A worker is one process, or two behind
the launcher of a virtual environment. pip has some more."""


class _Basic(ctypes.Structure):
    """The structure JOBOBJECT_BASIC_LIMIT_INFORMATION."""

    _fields_ = (
        ("process_time", ctypes.c_int64),
        ("job_time", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("least_working_set", ctypes.c_size_t),
        ("most_working_set", ctypes.c_size_t),
        ("most_processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priority", ctypes.c_uint32),
        ("scheduling", ctypes.c_uint32),
    )


class _Extended(ctypes.Structure):
    """The structure JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("basic", _Basic),
        ("io", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peak_process_memory", ctypes.c_size_t),
        ("peak_job_memory", ctypes.c_size_t),
    )


class _Processes(ctypes.Structure):
    """The structure JOBOBJECT_BASIC_PROCESS_ID_LIST."""

    _fields_ = (("assigned", ctypes.c_uint32), ("listed", ctypes.c_uint32), ("ids", ctypes.c_size_t * _MOST_PROCESSES))


class _Counters(ctypes.Structure):
    """The structure PROCESS_MEMORY_COUNTERS_EX."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("faults", ctypes.c_uint32),
        ("peak_working_set", ctypes.c_size_t),
        ("working_set", ctypes.c_size_t),
        ("quota", ctypes.c_size_t * 4),
        ("pagefile", ctypes.c_size_t),
        ("peak_pagefile", ctypes.c_size_t),
        ("private", ctypes.c_size_t),
    )


def environment() -> dict[str, str]:
    """Return the environment variables of a worker: this process's, without telemetry and with one OpenBLAS thread.

    The user may enable the telemetry, but not more threads.
    """
    # This overrides the user's setting: a thread that starts before a worker confines itself is not confined.
    return {_TELEMETRY: "1", **os.environ, _BLAS_THREADS: "1"}


if sys.platform == "win32":

    def _kernel() -> Any:
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateJobObjectW.restype = ctypes.c_void_p
        kernel.CreateJobObjectW.argtypes = [ctypes.c_void_p, ctypes.c_wchar_p]
        kernel.OpenProcess.restype = ctypes.c_void_p
        kernel.OpenProcess.argtypes = [ctypes.c_uint32, ctypes.c_int, ctypes.c_uint32]
        kernel.AssignProcessToJobObject.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        kernel.GetProcessTimes.argtypes = [ctypes.c_void_p] * 5
        kernel.TerminateJobObject.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
        kernel.CloseHandle.argtypes = [ctypes.c_void_p]
        kernel.SetInformationJobObject.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32]
        kernel.QueryInformationJobObject.argtypes = [
            ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p,
        ]  # fmt: skip
        kernel.K32GetProcessMemoryInfo.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]
        kernel.GetCurrentProcess.restype = ctypes.c_void_p
        return kernel

    def _memory(kernel: Any, process: int) -> _Counters:
        """Return the memory counters of a process; zeros if Windows refuses."""
        counters = _Counters()
        counters.size = ctypes.sizeof(counters)
        kernel.K32GetProcessMemoryInfo(process, ctypes.byref(counters), counters.size)
        return counters

    class Job:
        """A job object of Windows. Its processes end with ``end``, or when the last handle to it closes.

        The system closes the handle when this process ends for any reason, so no worker survives it.
        """

        def __init__(self) -> None:
            self._kernel = _kernel()
            self._handle = self._kernel.CreateJobObjectW(None, None)
            self._limit(0)
            restrictions = ctypes.c_uint32(_NO_UI)
            self._kernel.SetInformationJobObject(
                self._handle, _UI_RESTRICTIONS, ctypes.byref(restrictions), ctypes.sizeof(restrictions)
            )

        def _limit(self, job_memory: int) -> None:
            limits = _Extended()
            limits.basic.flags = _LIMIT_KILL_ON_CLOSE | _LIMIT_DIE_ON_EXCEPTION | _LIMIT_PROCESSES
            limits.basic.most_processes = _MOST_PROCESSES
            if job_memory:
                limits.basic.flags |= _LIMIT_JOB_MEMORY
                limits.job_memory = job_memory
            self._kernel.SetInformationJobObject(
                self._handle, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
            )

        def add(self, process: Any) -> None:
            """Add a process of ``subprocess``, directly after its start."""
            self._kernel.AssignProcessToJobObject(self._handle, int(process._handle))

        def limit_memory(self, limit: int) -> None:
            """Let allocations fail above ``limit`` bytes of committed memory, for all processes together.

            With 0, there is no limit.
            """
            self._limit(limit)

        def private_bytes(self) -> int:
            """Return the private memory of all processes in the job, in bytes."""
            return sum(self._private(process) for process in self._processes())

        def cpu_seconds(self) -> float:
            """Return the CPU seconds of the living processes in the job."""
            return sum(self._times(process) for process in self._processes())

        def _processes(self) -> Iterator[int]:
            """Yield a handle of each process; it is closed before the next one opens."""
            if not self._handle:  # a null handle would mean the caller's own job
                return
            processes = _Processes()
            self._kernel.QueryInformationJobObject(
                self._handle, _PROCESS_IDS, ctypes.byref(processes), ctypes.sizeof(processes), None
            )
            for pid in processes.ids[: min(processes.listed, _MOST_PROCESSES)]:
                if process := self._kernel.OpenProcess(_QUERY_LIMITED | _VM_READ, 0, pid):
                    try:
                        yield process
                    finally:
                        self._kernel.CloseHandle(process)

        def _private(self, process: int) -> int:
            counters = _memory(self._kernel, process)
            return int(max(counters.private, counters.pagefile))  # the two are equal, but Wine only sets the second

        def _times(self, process: int) -> float:
            times = (ctypes.c_uint64 * 4)()  # FILETIMEs in 100 ns: creation, exit, kernel mode, user mode
            at = [ctypes.addressof(times) + 8 * i for i in range(4)]
            return (times[2] + times[3]) * 1e-7 if self._kernel.GetProcessTimes(process, *at) else 0.0

        def end(self) -> None:
            """End all processes in the job."""
            if self._handle:
                self._kernel.TerminateJobObject(self._handle, 1)
                self._kernel.CloseHandle(self._handle)
                self._handle = None

    def peak_memory() -> dict[str, int]:
        """Return the peaks of this process's memory in bytes: ``peak`` (in memory) and ``committed`` (private).

        Empty if they are unknown.
        """
        kernel = _kernel()
        counters = _memory(kernel, kernel.GetCurrentProcess())
        peaks = {"peak": counters.peak_working_set, "committed": counters.peak_pagefile}
        return peaks if any(peaks.values()) else {}

    def no_crash_dialog() -> None:
        """Disable, for this process and its children, the dialog after a crash, which waits for a click."""
        ctypes.WinDLL("kernel32").SetErrorMode(_ERROR_MODE)

else:

    class Job:
        """A job that does nothing, for systems other than Windows: process groups do its work."""

        def add(self, process: Any) -> None:
            """Do nothing."""

        def limit_memory(self, limit: int) -> None:
            """Do nothing."""

        def end(self) -> None:
            """Do nothing."""

        def private_bytes(self) -> int:
            """Return 0: unknown on this system."""
            return 0

        def cpu_seconds(self) -> float:
            """Return 0: unknown on this system."""
            return 0.0

    def peak_memory() -> dict[str, int]:
        """Return the peak of this process's memory in bytes, as ``peak``; empty if unknown."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open("/proc/self/status", encoding="ascii", errors="replace") as file:
                line = next((line for line in file if line.startswith("VmHWM:")), "")
            return {"peak": int(line.split()[1]) * 1024}
        return {}

    def no_crash_dialog() -> None:
        """Do nothing: only Windows shows such dialogs."""


def watch_parent() -> None:
    """End this process when the pipe on its standard input closes, that is, when its parent ends.

    A thread reads a duplicate of the pipe, and standard input becomes the null device. On Windows, a waiting read
    blocks every other use of the handle. One such use is in numpy's import (numpy issue 24290, CPython issue 78961).
    """
    watched = os.dup(0)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(watched, 4096):
                pass
        os._exit(1)

    threading.Thread(target=wait, name="dmlprep-parent", daemon=True).start()
