"""Which bubblewrap starts the sandbox: that of the root file system, or, where nobody vouches for it, this system's.

bubblewrap itself runs outside: it makes the sandbox. So it is taken from what was fetched only where Debian's
signature, checked here, vouches for it. A mark beside a root file system that was fetched with ``--unverified`` says
that it is not; it is there before the first such file is, and goes after the last.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from dmlprep.errors import CheckNotRun
from dmlprep.runtime.linux.layout import Layout

__all__ = ["bubblewrap", "distrust", "trust", "untrusted", "why_not"]

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_FIX = (
    "install bubblewrap (the program bwrap) with this system's package manager; or install gpgv and "
    "debian-archive-keyring, and run dmlprep runtime install without --unverified"
)


def bubblewrap(root: Path) -> list[str]:
    """The command that starts bubblewrap for a root file system.

    Raises:
        CheckNotRun: the root file system was fetched unverified, and this system has no bubblewrap.
    """
    if untrusted(Layout(root.parent)):
        return [this_system_s()]
    loader = root / "usr/lib64/ld-linux-x86-64.so.2"
    return [str(loader), "--library-path", str(root / _LIBRARIES), str(root / "usr/bin/bwrap")]


def this_system_s() -> str:
    """The bubblewrap that this system has installed.

    Raises:
        CheckNotRun: it has none.
    """
    if found := shutil.which("bwrap"):
        return found
    raise CheckNotRun(
        "the root file system is unverified, so no program of it may start the sandbox, and this system has no "
        "bubblewrap of its own",
        fix=_FIX,
    )


def untrusted(layout: Layout) -> bool:
    """Whether the root file system may hold what was fetched unverified."""
    return layout.unverified.exists()


def distrust(layout: Layout) -> None:
    """Say that what is fetched now is unverified."""
    layout.unverified.touch()


def trust(layout: Layout) -> None:
    """Say that the root file system, which is there as a whole, was verified."""
    layout.unverified.unlink(missing_ok=True)


def why_not(layout: Layout) -> str:
    """Why no sandbox can be started for this installation, as a sentence; empty where one can."""
    try:
        bubblewrap(layout.root)
    except CheckNotRun as error:
        return str(error)
    return ""
