"""Stop the program after Ctrl-C, SIGTERM, or when the terminal or console window closes.

All worker processes are killed, and the main thread gets a KeyboardInterrupt, which removes everything half-written. If
the main thread has not ended ``GRACE`` seconds later (a library's code, a wait for a thread, or a caught exception),
another thread cleans up and ends the program. Only the command line does so, not programs that import dmlprep.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from typing import NoReturn

from dmlprep.core.files.run_folder import end_processes, end_run

GRACE = 0.8
"""Seconds that the main thread has to end. The whole program ends within two."""

STOPPED = "stopped; no partial files remain"

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
"""In this order: Ctrl-C, a request to end, a closed terminal, Ctrl-Break on Windows."""

_CLOSE, _LOGOFF, _SHUTDOWN = 2, 5, 6
"""Console events of Windows that end the program when their handler returns, and after 5 s in any case.

Source: learn.microsoft.com, "HandlerRoutine callback function". Python knows only Ctrl-C and Ctrl-Break.
"""


def _high(descriptor: int) -> int:
    """Move a descriptor above the standard streams, and return its new number.

    The number of a standard stream that is closed could be reused.
    """
    import fcntl

    moved = int(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3))
    os.close(descriptor)
    return moved


def exit_code(number: int) -> int:
    """Return the exit code for a signal, 128 and its number: 130 for Ctrl-C, and on Windows for all."""
    return 128 + (number if sys.platform != "win32" else int(signal.SIGINT))


class Stopping:
    """Watches for signals after ``install``; ``asked`` is the number of the one that stops the program, otherwise 0."""

    def __init__(self) -> None:
        self.asked = 0
        self._over = False

    def install(self) -> None:
        """Install handlers for the signals, except for ignored ones (``nohup``)."""
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._handle)
        if sys.platform == "win32":
            self._watch_console()
        else:
            self._watch_signals()

    def over(self) -> None:
        """Record that the command has ended: a signal no longer changes its result."""
        self._over = True

    def _handle(self, number: int, _frame: object) -> None:
        # Once: a second Ctrl-C must not interrupt the clean-up, which ends soon by itself.
        if self.asked or self._over:
            return
        self.asked = number
        end_processes()
        raise KeyboardInterrupt

    def _watch_signals(self) -> None:
        """Receive each signal in a thread too: while the main thread runs a library's code, no handler is called."""
        read_end, write_end = (_high(end) for end in os.pipe())
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        numbers = {getattr(signal, name, 0) for name in _SIGNALS}

        def watch() -> None:
            while byte := os.read(read_end, 1):
                if byte[0] in numbers and signal.getsignal(byte[0]) == self._handle:
                    self._end(byte[0])

        threading.Thread(target=watch, name="dmlprep-stopping", daemon=True).start()

    def _watch_console(self) -> None:
        kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined,unused-ignore]
        kind = ctypes.WINFUNCTYPE(ctypes.c_int, ctypes.c_uint32)  # type: ignore[attr-defined,unused-ignore]
        self._routine = kind(self.console_event)  # kept: Windows does not
        kernel.SetConsoleCtrlHandler(self._routine, 1)

    def console_event(self, event: int) -> int:
        """Handle one event of the console, in the thread in which Windows calls it.

        Return 0 for Ctrl-C and Ctrl-Break, which Python then handles too. For other events, end the program.
        """
        if event in (_CLOSE, _LOGOFF, _SHUTDOWN):
            self._end(signal.SIGTERM)
        threading.Thread(target=self._end, args=(signal.SIGINT,), name="dmlprep-stopping", daemon=True).start()
        return 0  # Python handles Ctrl-C and Ctrl-Break too

    def _end(self, number: int) -> NoReturn:
        """End the program soon; runs outside the main thread."""
        last = time.monotonic() + GRACE
        while time.monotonic() < last:
            # Again and again: the main thread may be about to start one.
            end_processes()
            time.sleep(0.05)
        if not self._over:
            with contextlib.suppress(OSError):
                os.write(2, f"\n{STOPPED}\n".encode())
        end_run()
        os._exit(exit_code(number))
