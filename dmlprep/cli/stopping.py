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
"""Seconds that the main thread has to leave. All is over within two."""

STOPPED = "stopped; no partial files remain"

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
"""Ctrl-C; asked to end; the terminal went away; Ctrl-Break on Windows."""

_CLOSE, _LOGOFF, _SHUTDOWN = 2, 5, 6
"""Console events of Windows that end the program when their handler returns, and 5 s later in any case
(learn.microsoft.com, "HandlerRoutine callback function"); Python knows of Ctrl-C and Ctrl-Break only."""


def _high(descriptor: int) -> int:
    """The same file above the standard streams: where one of these is closed, its number is the next that is given."""
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
        """Take the signals over, but for those that are ignored (``nohup``)."""
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._told)
        if sys.platform == "win32":
            self._watch_console()
        else:
            self._watch_signals()

    def over(self) -> None:
        """The command has come to its end: a signal no longer changes what it says."""
        self._over = True

    def _told(self, number: int, _frame: object) -> None:
        # Once: a second Ctrl-C must not cut the cleaning short. It ends by itself, soon.
        if self.asked or self._over:
            return
        self.asked = number
        end_processes()
        raise KeyboardInterrupt

    def _watch_signals(self) -> None:
        """Hear of each signal in a thread too: where the main thread is in a library's code, no handler is called."""
        heard, told = (_high(end) for end in os.pipe())
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        numbers = {getattr(signal, name, 0) for name in _SIGNALS}

        def watch() -> None:
            while byte := os.read(heard, 1):
                if byte[0] in numbers and signal.getsignal(byte[0]) == self._told:
                    self._end(byte[0])

        threading.Thread(target=watch, name="dmlprep-stopping", daemon=True).start()

    def _watch_console(self) -> None:
        kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined,unused-ignore]
        kind = ctypes.WINFUNCTYPE(ctypes.c_int, ctypes.c_uint32)  # type: ignore[attr-defined,unused-ignore]
        self._routine = kind(self.console_event)  # kept: Windows does not
        kernel.SetConsoleCtrlHandler(self._routine, 1)

    def console_event(self, event: int) -> int:
        """Answer one event of the console, in the thread that Windows calls it in."""
        if event in (_CLOSE, _LOGOFF, _SHUTDOWN):
            self._end(signal.SIGTERM)
        threading.Thread(target=self._end, args=(signal.SIGINT,), name="dmlprep-stopping", daemon=True).start()
        return 0  # Python handles Ctrl-C and Ctrl-Break too

    def _end(self, number: int) -> NoReturn:
        """End the program, soon; in another thread than the main one."""
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
