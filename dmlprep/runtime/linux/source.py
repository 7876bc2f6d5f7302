"""Where the pieces of the runtime come from, as the command line asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dmlprep.runtime.linux.layout import DEFAULT_RELEASE
from dmlprep.runtime.linux.release import DEFAULT_KEYRING

Say = Callable[[str, int, int], None]
"""Told each thing that is done, and how far it is: (what, bytes done, bytes in all)."""


@dataclass(frozen=True)
class Source:
    """Where the pieces come from.

    Attributes:
        mirror: address of a Debian mirror; empty takes the one that apt uses here.
        keyring: keys of Debian's archive.
        release: of ONNX Runtime with DirectML.
        wheel: a wheel file in place of what pip would fetch.
    """

    mirror: str = ""
    keyring: Path = DEFAULT_KEYRING
    release: str = DEFAULT_RELEASE
    wheel: Path | None = None
