"""Do something as a user who is not root, with the runtime that root has installed.

A test that runs as root starts this as a program. The runtime is mounted where the user can see it, in mounts of
this process alone, and so are the interpreter and the sources, which often lie in a folder that only root may enter.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.runtime import breaking_out

__all__ = ["USER", "run"]

USER = 54321

_NEW_MOUNTS, _READ_ONLY, _REMOUNT, _BIND, _WITH_ALL_BELOW, _PRIVATE = 0x20000, 1, 32, 4096, 16384, 1 << 18
_SET_DUMPABLE = 4


def run(what: str) -> Any:
    """What a function of ``breaking_out`` gives as ``USER``.

    Raises:
        RuntimeError: it cannot be done here; the message says why.
    """
    folder = Path(tempfile.mkdtemp(prefix="dmlprep-user-"))
    try:
        folder.chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-m", "tests.runtime.as_user", what, str(folder)],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{done.stdout}{done.stderr}")
        return json.loads(done.stdout.splitlines()[-1])
    finally:
        shutil.rmtree(folder)


def _call(result: int, what: str) -> None:
    if result:
        raise RuntimeError(f"{what}: {os.strerror(ctypes.get_errno())}")


def _mount(libc: ctypes.CDLL, source: Path, target: Path) -> None:
    _call(libc.mount(bytes(source), bytes(target), None, _BIND | _WITH_ALL_BELOW, None), f"{source} cannot be mounted")


def _show(libc: ctypes.CDLL, paths: set[Path], keep: Path) -> None:
    """Let everyone reach these folders: an empty folder covers each one above them that only its owner may enter."""
    hidden = {p: [a for a in p.parents if not a.stat().st_mode & 1] for p in paths}
    kept = {p: keep / str(n) for n, p in enumerate(p for p, above in hidden.items() if above)}
    for path, place in kept.items():
        place.mkdir(parents=True)
        _mount(libc, path, place)
    for cover in {hidden[p][-1] for p in kept}:
        _call(libc.mount(b"none", bytes(cover), b"tmpfs", 0, b"mode=755"), f"{cover} cannot be covered")
    for path, place in kept.items():
        path.mkdir(parents=True)
        _mount(libc, place, path)


def _main(what: str, folder: Path) -> None:
    from dmlprep.runtime.linux.layout import Layout

    function: Callable[[], Any] = getattr(breaking_out, what)
    here, seen = Layout.of_user().home, folder / "cache/dmlprep/runtime"
    seen.mkdir(parents=True)
    libc = ctypes.CDLL(None, use_errno=True)
    _call(libc.unshare(_NEW_MOUNTS), "a mount namespace cannot be made")
    _call(libc.mount(b"none", b"/", None, _WITH_ALL_BELOW | _PRIVATE, None), "mounts cannot be made private")
    _call(libc.mount(bytes(here), bytes(seen), None, _BIND, None), "the runtime cannot be mounted")
    _call(libc.mount(None, bytes(seen), None, _REMOUNT | _BIND | _READ_ONLY, None), "it cannot be made read-only")
    home = folder / "home"
    home.mkdir()
    os.chown(home, USER, USER)
    wanted = {Path(p) for p in (sys.base_prefix, sys.prefix, *sys.path) if Path(p).is_dir()} | {Path.cwd()}
    _show(libc, {p for p in wanted if not wanted & set(p.parents)}, folder / "kept")
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)  # as a process has it that was started by this user
    os.chdir(home)
    os.environ.update(HOME=str(home), XDG_CACHE_HOME=str(folder / "cache"), TMPDIR=str(home))
    tempfile.tempdir = None
    print(json.dumps(function()))


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
