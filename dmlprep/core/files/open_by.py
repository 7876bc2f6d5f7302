"""Find the programs that have a file open on Windows, and the reason why Windows cannot open it.

On other systems, both functions return an empty result.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from ctypes import wintypes
from pathlib import Path

_MORE_DATA = 234
_KEY_CHARACTERS = 33
"""Length of a session key: CCH_RM_SESSION_KEY (32) and the final zero. Sizes and structures of this module are those of
RestartManager.h."""


class _UniqueProcess(ctypes.Structure):
    _fields_ = (("process_id", ctypes.c_uint32), ("started", ctypes.c_uint32 * 2))


class ProcessInfo(ctypes.Structure):
    """The structure RM_PROCESS_INFO of RestartManager.h; it has 668 bytes."""

    _fields_ = (
        ("process", _UniqueProcess),
        ("application", ctypes.c_uint16 * 256),
        ("service", ctypes.c_uint16 * 64),
        ("kind", ctypes.c_int),
        ("status", ctypes.c_uint32),
        ("session", ctypes.c_uint32),
        ("restartable", ctypes.c_int),
    )


_READ, _WRITE, _SHARE_ALL, _EXISTING = 0x8000_0000, 0x4000_0000, 7, 3
"""CreateFileW's GENERIC_READ, GENERIC_WRITE, every FILE_SHARE, OPEN_EXISTING."""


def opening_error(path: Path) -> int | None:
    """Return the Windows error number for opening an existing file to read or write.

    Return ``None`` if the file can be opened, and on other systems. Python's ``open`` reports "permission denied" for
    all these errors, also for a file that another program has open.
    """
    if sys.platform == "win32":
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateFileW.restype = wintypes.HANDLE
        for access in (_READ, _WRITE):
            handle = kernel.CreateFileW(os.path.abspath(path), access, _SHARE_ALL, None, _EXISTING, 0, None)
            if handle == ctypes.c_void_p(-1).value:
                return ctypes.get_last_error()
            kernel.CloseHandle(wintypes.HANDLE(handle))
    return None


def holders(path: Path) -> tuple[str, ...]:
    """Return the programs that have ``path`` open, as ``Netron (process 4711)``.

    The result is empty if they are unknown, and on systems other than Windows.
    """
    if sys.platform == "win32":
        with contextlib.suppress(OSError, AttributeError):  # no such library or function: a reduced Windows
            return _ask(ctypes.WinDLL("rstrtmgr"), os.path.abspath(path))
    return ()


def _ask(manager: ctypes.CDLL, path: str) -> tuple[str, ...]:
    session = wintypes.DWORD()
    key = ctypes.create_unicode_buffer(_KEY_CHARACTERS)
    if manager.RmStartSession(ctypes.byref(session), 0, key):
        return ()
    try:
        names = (wintypes.LPCWSTR * 1)(path)
        if manager.RmRegisterResources(session, 1, names, 0, None, 0, None):
            return ()
        needed, why = wintypes.UINT(), wintypes.DWORD()
        room = 8
        for _ in range(3):  # more programs may open it meanwhile
            processes = (ProcessInfo * room)()
            count = wintypes.UINT(room)
            code = manager.RmGetList(session, ctypes.byref(needed), ctypes.byref(count), processes, ctypes.byref(why))
            if code != _MORE_DATA:
                return tuple(_named(one) for one in processes[: count.value]) if code == 0 else ()
            room = needed.value + 4
        return ()
    finally:
        manager.RmEndSession(session)


def _named(info: ProcessInfo) -> str:
    name = bytes(info.application).decode("utf-16-le", "replace").partition("\0")[0]
    return f"{name or 'a program'} (process {info.process.process_id})"
