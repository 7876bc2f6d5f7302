"""What is tried inside a worker that opens models on the CPU: run as a file, or where a worker imports it.

python worker_attempts.py FACTS.json ANSWERS.json
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["attempts"]

_HELD = (errno.EPERM, errno.EACCES, errno.EXDEV)


def _call(number: int, *arguments: Any) -> None:
    """A system call by its number on x86-64."""
    if ctypes.CDLL(None, use_errno=True).syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _fork_bomb() -> None:
    for _ in range(3):
        if os.fork() == 0:
            os._exit(0)
        os.wait()


def _spawn() -> None:
    os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 0"], {}), 0)


def _connect(family: int, kind: int, address: Any) -> None:
    with socket.socket(family, kind) as one:
        one.connect(address)
        one.send(b"?")


def attempts(facts: dict[str, Any]) -> dict[str, str]:
    """What became of each attempt, by its name: ``held EPERM``, or ``BROKE OUT``."""
    secret, victim, parent = Path(facts["secret"]), Path(facts["victim"]), facts["parent"]
    tried: dict[str, Callable[[], Any]] = {
        "read a file": secret.read_text,
        "read the file of another process": Path(f"/proc/{parent}/environ").read_bytes,
        "list a folder": lambda: os.listdir(secret.parent),
        "write a file": lambda: (secret.parent / "new").write_text("?"),
        "make a folder": (secret.parent / "folder").mkdir,
        "write to the model": lambda: open(victim, "r+b").close(),
        "cut the model short": lambda: os.truncate(victim, victim.stat().st_size),
        "move the model": lambda: victim.rename(victim.with_name("moved")).rename(victim),
        "change the mode of the model": lambda: victim.chmod(0o644),
        "change the time of the model": lambda: os.utime(victim),
        "make a link": lambda: os.symlink(secret, Path(facts["results"], "link")),
        "make a hard link": lambda: os.link(secret, Path(facts["results"], "hard")),
        "connect by TCP": lambda: _connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", facts["tcp"])),
        "send by UDP": lambda: _connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", facts["tcp"])),
        "connect to a service": lambda: _connect(socket.AF_UNIX, socket.SOCK_STREAM, facts["unix"]),
        "signal the parent": lambda: os.kill(parent, 0),
        "signal all": lambda: os.kill(-os.getppid(), 0),
        "signal a thread of the parent": lambda: _call(234, parent, parent, 0),
        "set a limit of the parent": lambda: resource.prlimit(parent, resource.RLIMIT_CORE, (0, 0)),
        "trace the parent": lambda: _call(101, 0x4206, parent, None, None),  # PTRACE_SEIZE, which does not stop it
        "open the parent's memory": lambda: open(f"/proc/{parent}/mem", "rb").close(),
        "outlive the parent": lambda: _call(157, 1, 0, 0, 0, 0),
        "a fork bomb": _fork_bomb,
        "start a program": _spawn,
        "become a program": lambda: os.execv("/nothing", ["nothing"]),
        "namespaces": lambda: _call(272, 0x10000000),
        "mount": lambda: _call(165, b"none", b"/", None, 0x44000, None),
        "a ring": lambda: _call(425, 1, ctypes.create_string_buffer(120)),
        "the keyring": lambda: _call(250, 0, -3, 0, 0, 0),
        "shared memory": lambda: _call(29, 0, 4096, 0o1600),
    }
    if facts["feeds"]:
        tried["write to a feed"] = lambda: Path(facts["feeds"], "feed").write_text("?")
    return {name: _outcome(attempt) for name, attempt in tried.items()}


def _outcome(attempt: Callable[[], Any]) -> str:
    try:
        attempt()
    except OSError as error:
        if error.errno in _HELD:
            return f"held {errno.errorcode[error.errno]}"
        return f"BROKE OUT, {errno.errorcode.get(error.errno or 0)}"
    return "BROKE OUT"


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    Path(sys.argv[2]).write_text(json.dumps(attempts(json.loads(Path(sys.argv[1]).read_text()))))
